package purgatory

// Decision is the result of [Purgatory.Submit].
type Decision uint8

const (
	// Pass: the event needs no hold. It may be stored now.
	Pass Decision = iota + 1
	// Held: the event is held, and on the disk.
	Held
	// Refused: the event can not be held. Answer.Reason has the reason.
	Refused
	// Full: too many events are held, of its author or of all. The event may be submitted again
	// later.
	Full
)

// Answer is the answer of [Purgatory.Submit].
type Answer struct {
	Decision Decision
	Reason   string // for a client, in the words of an OK message (NIP-01)
}

const (
	reasonSuperseded = "duplicate: a newer version waits"
	reasonOlder      = "duplicate: a newer version is served"
	reasonExpired    = "blocked: its git data never came"
	reasonAuthor     = "rate-limited: too many events of this author wait for git data"
	reasonFull       = "error: too many events wait for git data"
	reasonListed     = "rate-limited: too many are listed by announcements of this name that wait for git data"
	reasonPulls      = "rate-limited: the refs of pull requests take up all the room in this repository. Try again later"
)
