package purgatory

// Decision is what becomes of an event that was submitted.
type Decision uint8

const (
	// Pass: it does not wait. It may be stored now.
	Pass Decision = iota + 1
	// Held: it waits, and is on the disk.
	Held
	// Refused: it can't wait; Answer.Reason says why.
	Refused
	// Full: it can't wait now, since too much does already, of its author or of all.
	// Nothing is wrong with it: it may be submitted again later.
	Full
)

// Answer is what [Purgatory.Submit] says.
type Answer struct {
	Decision Decision
	Reason   string // for a client, in the words of an OK message (NIP-01)
}

// The reasons of an Answer.
const (
	reasonSuperseded = "duplicate: a newer version waits"
	reasonOlder      = "duplicate: a newer version is served"
	reasonExpired    = "blocked: its git data never came"
	reasonAuthor     = "rate-limited: too many events of this author wait for git data"
	reasonFull       = "error: too many events wait for git data"
	reasonListed     = "rate-limited: too many are listed by announcements of this name that wait for git data"
	reasonPulls      = "rate-limited: the refs of pull requests take up all the room in this repository. Try again later"
)
