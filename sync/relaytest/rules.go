package relaytest

import (
	"fmt"
	"time"
)

// The rules for relays that say nothing else in [Behavior.Info].
const (
	maxSubs        = 20
	maxFilters     = 20
	maxMessage     = 64 << 10 // bytes
	maxSubID       = 64       // bytes
	maxTagNames    = 3
	maxIDs         = 500 // ids in a filter: common relays answer no more
	maxValueLength = 255 // bytes
	openingTime    = 2 * time.Second
	coolDown       = 60 * time.Second
)

// ViolationKind tells what a [Violation] is.
type ViolationKind string

// What a client may do wrong. A rule that a relay's Info has a number for uses
// that number.
const (
	// ViolationReusedID: a subscription id was used before on the connection.
	// Ids of NEG sessions are looked at apart.
	ViolationReusedID ViolationKind = "reused id"
	// ViolationSubID: an id of 0 or more than 64 bytes.
	ViolationSubID ViolationKind = "subscription id"
	// ViolationNoFilters: a REQ without a filter.
	ViolationNoFilters ViolationKind = "no filters"
	// ViolationManyFilters: a REQ with more than 20 filters, or a NEG-OPEN with
	// more than one.
	ViolationManyFilters ViolationKind = "too many filters"
	// ViolationHistoric: stored events asked for by more than one filter of a REQ,
	// so that nobody can tell which one was cut short.
	ViolationHistoric ViolationKind = "several historic filters"
	// ViolationEmptyList: an empty list in a filter.
	ViolationEmptyList ViolationKind = "empty list"
	// ViolationManyValues: more than 100 values of a tag, or authors, or more than
	// 500 ids in a filter.
	ViolationManyValues ViolationKind = "too many values"
	// ViolationManyTagNames: more than 3 tag names in a filter.
	ViolationManyTagNames ViolationKind = "too many tag names"
	// ViolationValue: a value of more than 255 bytes, or one that is not 64
	// lower-case hex digits where only these make sense.
	ViolationValue ViolationKind = "bad value"
	// ViolationMessageSize: a message of more than 64 KiB.
	ViolationMessageSize ViolationKind = "message too large"
	// ViolationManySubs: more than 20 subscriptions, or NEG sessions, at once.
	ViolationManySubs ViolationKind = "too many subscriptions"
	// ViolationHurry: a REQ less than 2 s after another one that nothing was
	// answered to, so that nobody can tell to which one a NOTICE belongs.
	ViolationHurry ViolationKind = "REQ before an answer to the last one"
	// ViolationCoolDown: a request within 60 s of a refusal as "rate-limited", of the first
	// where several come in that time.
	ViolationCoolDown ViolationKind = "request while rate limited"
	// ViolationNegOverlap: a NEG-MSG before the answer to the last one.
	ViolationNegOverlap ViolationKind = "NEG-MSG in flight"
	// ViolationNegUnknown: a NEG-MSG for a session that was never opened.
	ViolationNegUnknown ViolationKind = "unknown NEG session"
	// ViolationAuth: an AUTH without a challenge, or a second one.
	ViolationAuth ViolationKind = "AUTH"
	// ViolationConcurrentUse: two calls of Send or of Receive at the same time.
	ViolationConcurrentUse ViolationKind = "concurrent use"
	// ViolationMalformed: a text that is no client message.
	ViolationMalformed ViolationKind = "malformed message"
)

// Violation is something that a client did which some real relay would take amiss.
type Violation struct {
	At     time.Time
	Kind   ViolationKind
	Conn   int
	Sub    string
	Detail string
}

// String returns all of it in one line.
func (v Violation) String() string {
	return fmt.Sprintf("connection %d, %q: %s: %s", v.Conn, v.Sub, v.Kind, v.Detail)
}

// or returns n, or def if n is 0.
func or(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}
