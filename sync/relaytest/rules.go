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
	// ViolationReusedID means that a subscription id was used before on the connection. NEG sessions have ids
	// of their own.
	ViolationReusedID ViolationKind = "reused id"
	// ViolationSubID means that an id is empty or longer than 64 bytes.
	ViolationSubID ViolationKind = "subscription id"
	// ViolationNoFilters means that a REQ has no filter.
	ViolationNoFilters ViolationKind = "no filters"
	// ViolationManyFilters means that a REQ has more than 20 filters, or a NEG-OPEN more than one.
	ViolationManyFilters ViolationKind = "too many filters"
	// ViolationHistoric means that several filters of a REQ ask for stored events, so that the client cannot
	// know which filter was capped.
	ViolationHistoric ViolationKind = "several historic filters"
	// ViolationEmptyList means that a filter has an empty list.
	ViolationEmptyList ViolationKind = "empty list"
	// ViolationManyValues means that a filter has more than 100 authors or values of a tag, or more than 500
	// ids.
	ViolationManyValues ViolationKind = "too many values"
	// ViolationManyTagNames means that a filter has more than 3 tag names.
	ViolationManyTagNames ViolationKind = "too many tag names"
	// ViolationValue means that a value is longer than 255 bytes, or an id or key is not 64 lower-case hex
	// digits.
	ViolationValue ViolationKind = "bad value"
	// ViolationMessageSize means that a message is larger than 64 KiB.
	ViolationMessageSize ViolationKind = "message too large"
	// ViolationManySubs means that more than 20 subscriptions or NEG sessions are open.
	ViolationManySubs ViolationKind = "too many subscriptions"
	// ViolationHurry means that a REQ follows another within 2 s that has no answer yet, so that a NOTICE
	// could belong to either.
	ViolationHurry ViolationKind = "REQ before an answer to the last one"
	// ViolationCoolDown means that a request follows within 60 s of a "rate-limited" refusal. Further
	// refusals in that time do not extend it.
	ViolationCoolDown ViolationKind = "request while rate limited"
	// ViolationNegOverlap means that a NEG-MSG precedes the answer to the last one.
	ViolationNegOverlap ViolationKind = "NEG-MSG in flight"
	// ViolationNegUnknown means that a NEG-MSG names a session that was never opened.
	ViolationNegUnknown ViolationKind = "unknown NEG session"
	// ViolationAuth means that an AUTH has no challenge, or follows a successful one.
	ViolationAuth ViolationKind = "AUTH"
	// ViolationConcurrentUse means that two calls of Send or two calls of Receive overlap.
	ViolationConcurrentUse ViolationKind = "concurrent use"
	// ViolationMalformed means that a text is not a client message.
	ViolationMalformed ViolationKind = "malformed message"
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
