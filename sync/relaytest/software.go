package relaytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// Software is the program that a [Relay] is like: in its words, in how it says them,
// and in which limit it looks at first.
type Software uint8

// The zero Software is no real program; it says what many say.
const (
	SoftwareAny Software = iota
	// SoftwareRustNostr is the relay of rust-nostr 0.45 (nostr-sdk, local_relay).
	SoftwareRustNostr
	// SoftwareStrfry is strfry since 1.1.
	SoftwareStrfry
	// SoftwareOldStrfry is strfry 1.0, which refuses a REQ by NOTICE.
	SoftwareOldStrfry
	// SoftwareKhatru is khatru 0.19 with the words of its package policies.
	SoftwareKhatru
)

// String returns the name of the program.
func (s Software) String() string {
	names := [...]string{"any", "rust-nostr", "strfry", "old strfry", "khatru"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("software(%d)", uint8(s))
}

// program judges what clients send. Its methods are called with relay.mu held; they
// return nil where there is nothing to refuse.
type program interface {
	// request judges a REQ of so many bytes.
	request(c *Conn, req wire.Request, size int) *refusal
	// ended is what follows the EOSE of a subscription that so many events answered.
	ended(c *Conn, s *subscription, found int) []frame
	// negOpen judges a NEG-OPEN; found counts the records that it is about.
	negOpen(c *Conn, req wire.Request, found func() int) *refusal
	// negSend judges a NEG-MSG of an open session.
	negSend(c *Conn) *refusal
	manners() *manners
}

// manners are the words of a program that need no judgement.
type manners struct {
	meter func() meter

	greets     bool          // the challenge comes at once, not with a refusal
	challenges bool          // each challenge is a new one
	authAge    time.Duration // of an AUTH, 0 for any
	authed     string        // the OK of an AUTH
	authWords  func(fault string) string
	authRate   string

	negOff      string // NIP-77 is not done, by NOTICE
	negLost     string
	negInvalid  string
	negError    bool // NEG-ERROR instead of NEG-ERR
	negTogether bool // NegMax is for all sessions of a connection

	malformed string // of what is no message; "%v" is why not
	overflow  string // of live events
	merges    bool   // what several filters find comes in one order

	wrongID, wrongSig string
	eventRate         string
	eventSize         string             // formatted with size and limit
	outcomes          map[string]outcome // of events that are not stored, by the archive's words
}

// outcome is an OK.
type outcome struct {
	accepted bool
	text     string
}

// What may be wrong with an AUTH, in the words of no program.
const (
	faultEvent     = "invalid: id or signature"
	faultKind      = "invalid: kind"
	faultChallenge = "invalid: challenge"
	faultRelay     = "invalid: relay"
	faultTime      = "invalid: time"
)

// rate is something that is counted by the minute.
type rate uint8

const (
	rateQueries rate = iota
	rateNegs
	rateEvents
	rateAuths
	rateMessages
)

// meter counts what may happen so often in a minute.
type meter interface {
	// take reports whether it may happen once more, now.
	take(now time.Time, perMinute int) bool
}

// window is a meter that looks at the last sixty seconds; what was refused does not
// count.
type window []time.Time

func newWindow() meter { return &window{} }

func (w *window) take(now time.Time, perMinute int) bool {
	*w = slices.DeleteFunc(*w, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	if len(*w) >= perMinute {
		return false
	}
	*w = append(*w, now)
	return true
}

// mostChallenges is how many are kept that nobody answered, as rust-nostr does.
const mostChallenges = 20
