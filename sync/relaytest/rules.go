package relaytest

import (
	"fmt"
	"time"
)

// Rules for relays whose [Behavior.Info] contains no number.
const (
	maxSubs        = 20
	maxFilters     = 20
	liveSince      = 25 * time.Hour
	maxMessage     = 64 << 10 // bytes
	maxSubID       = 64       // bytes
	maxTagNames    = 3
	maxIDs         = 500 // ids in a filter; common relays return no more
	maxValueLength = 255 // bytes
	openingTime    = 2 * time.Second
	coolDown       = 60 * time.Second
)

// ViolationKind is the rule that a [Violation] breaks.
type ViolationKind string

// Rules for clients. If the relay's Info contains a number for a rule, that number applies.
const (
	ViolationReusedID      ViolationKind = "reused id"                            // subscription id was used before on the connection. NEG sessions have ids of their own
	ViolationSubID         ViolationKind = "subscription id"                      // id is empty or longer than 64 bytes
	ViolationNoFilters     ViolationKind = "no filters"                           // REQ has no filter
	ViolationManyFilters   ViolationKind = "too many filters"                     // REQ has more than 20 filters, or a NEG-OPEN more than one
	ViolationHistoric      ViolationKind = "several historic filters"             // several filters of a REQ ask for stored events, so that the client cannot know which filter was capped
	ViolationEmptyList     ViolationKind = "empty list"                           // filter has an empty list
	ViolationManyValues    ViolationKind = "too many values"                      // filter has more than 100 authors or values of a tag, or more than 500 ids
	ViolationManyTagNames  ViolationKind = "too many tag names"                   // filter has more than 3 tag names
	ViolationValue         ViolationKind = "bad value"                            // value is longer than 255 bytes, or an id or key is not 64 lower-case hex digits
	ViolationMessageSize   ViolationKind = "message too large"                    // message is larger than 64 KiB
	ViolationManySubs      ViolationKind = "too many subscriptions"               // more than 20 subscriptions or NEG sessions are open
	ViolationHurry         ViolationKind = "REQ before an answer to the last one" // REQ follows another within 2 s that has no answer yet, so that a NOTICE could belong to either
	ViolationCoolDown      ViolationKind = "request while rate limited"           // request follows within 60 s of a "rate-limited" refusal. Further refusals in that time do not extend it
	ViolationNegOverlap    ViolationKind = "NEG-MSG in flight"                    // NEG-MSG precedes the answer to the last one
	ViolationNegUnknown    ViolationKind = "unknown NEG session"                  // NEG-MSG names a session that was never opened
	ViolationAuth          ViolationKind = "AUTH"                                 // AUTH has no challenge, or follows a successful one
	ViolationConcurrentUse ViolationKind = "concurrent use"                       // two calls of Send or two calls of Receive overlap
	ViolationMalformed     ViolationKind = "malformed message"                    // text is not a client message
)

// Violation is an action of a client that some real relay would punish.
type Violation struct {
	At     time.Time
	Kind   ViolationKind
	Conn   int
	Sub    string
	Detail string
}

// String returns the violation in one line.
func (v Violation) String() string {
	return fmt.Sprintf("connection %d, %q: %s: %s", v.Conn, v.Sub, v.Kind, v.Detail)
}

func or(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}
