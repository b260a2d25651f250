package relaytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// Software is the program that a [Relay] imitates: its messages, how it sends them, and the order
// of its checks.
type Software uint8

// The zero Software is an imaginary program with common messages.
const (
	SoftwareAny Software = iota
	// SoftwareRustNostr is the relay of rust-nostr 0.45 (nostr-sdk, local_relay).
	SoftwareRustNostr
	// SoftwareStrfry is strfry since 1.1.
	SoftwareStrfry
	// SoftwareOldStrfry is strfry 1.0, which refuses a REQ by NOTICE.
	SoftwareOldStrfry
	// SoftwareKhatru is khatru 0.19 with messages of its package policies.
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

// program checks messages of clients. Its methods return nil if they refuse nothing. The caller
// holds relay.mu.
type program interface {
	// request checks a REQ of size bytes.
	request(c *Conn, req wire.Request, size int) *refusal
	// ended returns frames after the EOSE of a subscription with found stored events.
	ended(c *Conn, s *subscription, found int) []frame
	// negOpen checks a NEG-OPEN. found returns its number of records.
	negOpen(c *Conn, req wire.Request, found func() int) *refusal
	// negSend checks a NEG-MSG of an open session.
	negSend(c *Conn) *refusal
	manners() *manners
}

// manners are the constant messages and habits of a program.
type manners struct {
	meter func() meter

	greets     bool          // sends the challenge at the start, not with a refusal
	challenges bool          // each challenge is new
	authAge    time.Duration // maximum age of an AUTH, 0 for any
	authed     string        // text of the OK to an AUTH
	authWords  func(fault string) string
	authRate   string

	negOff      string // NOTICE if NIP-77 is off
	negLost     string
	negInvalid  string
	negError    bool // NEG-ERROR instead of NEG-ERR
	negTogether bool // NegMax applies to all sessions of a connection together

	malformed string // malformed message; "%v" is the error
	overflow  string // too many waiting live events
	merges    bool   // sorts the events of several filters together

	wrongID, wrongSig string
	eventRate         string
	eventSize         string             // format with size and limit
	outcomes          map[string]outcome // of events that are not stored, by the archive's reason
}

type outcome struct {
	accepted bool
	text     string
}

// Reasons for an invalid AUTH.
const (
	faultEvent     = "invalid: id or signature"
	faultKind      = "invalid: kind"
	faultChallenge = "invalid: challenge"
	faultRelay     = "invalid: relay"
	faultTime      = "invalid: time"
)

// rate is a class of messages with a limit per minute.
type rate uint8

const (
	rateQueries rate = iota
	rateNegs
	rateEvents
	rateAuths
	rateMessages
)

// meter limits a rate.
type meter interface {
	// take counts a message and reports whether it is within the rate.
	take(now time.Time, perMinute int) bool
}

// window is a meter over the last 60 seconds. Refused messages do not count.
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

// mostChallenges is the maximum number of unanswered challenges, as in rust-nostr.
const mostChallenges = 20
