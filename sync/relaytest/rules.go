package relaytest

import (
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/wire"
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

// violate takes a violation down. relay.mu is not held.
func (c *Conn) violate(kind ViolationKind, detail, sub string) {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	c.note(kind, detail, sub)
}

// note is violate with relay.mu held.
func (c *Conn) note(kind ViolationKind, detail, sub string) {
	r := c.relay
	r.violations = remember(r.violations, Violation{At: time.Now(), Kind: kind, Conn: c.id, Sub: sub, Detail: detail})
}

// inspect checks a request against the rules before it has any effect. relay.mu is
// held.
func (c *Conn) inspect(req wire.Request, size int) {
	if most := or(c.info.MaxMessageLength, maxMessage); size > most {
		c.note(ViolationMessageSize, fmt.Sprintf("%d bytes, more than %d", size, most), req.Sub)
	}
	switch req.Type {
	case wire.TypeReq:
		c.inspectID(req.Sub, c.usedSubs)
		c.inspectReq(req)
	case wire.TypeNegOpen:
		c.inspectID(req.Sub, c.usedNegs)
		c.inspectNegOpen(req)
	case wire.TypeNegSend:
		if _, used := c.usedNegs[req.Sub]; !used {
			c.note(ViolationNegUnknown, "NEG-MSG", req.Sub)
		}
		if s := c.negs[req.Sub]; s != nil && s.inFlight {
			c.note(ViolationNegOverlap, fmt.Sprintf("after %d answers", s.rounds), req.Sub)
		}
	case wire.TypeAnswer:
		if len(c.challenges) == 0 || c.authed {
			c.note(ViolationAuth, "without a challenge, or again", "")
		}
	}
}

func (c *Conn) inspectID(id string, used map[string]struct{}) {
	if id == "" || len(id) > or(c.info.MaxSubIDLength, maxSubID) {
		c.note(ViolationSubID, fmt.Sprintf("%d bytes", len(id)), id)
	}
	if _, ok := used[id]; ok {
		c.note(ViolationReusedID, "used before", id)
	}
	used[id] = struct{}{}
	if !c.refusedAt.IsZero() && time.Since(c.refusedAt) < coolDown {
		c.note(ViolationCoolDown, fmt.Sprintf("%v after the refusal", time.Since(c.refusedAt)), id)
	}
}

func (c *Conn) inspectReq(req wire.Request) {
	if len(req.Filters) == 0 {
		c.note(ViolationNoFilters, "REQ", req.Sub)
	}
	if most := or(c.info.MaxFilters, maxFilters); len(req.Filters) > most {
		c.note(ViolationManyFilters, fmt.Sprintf("%d, more than %d", len(req.Filters), most), req.Sub)
	}
	if most := or(c.info.MaxSubscriptions, maxSubs); c.subs[req.Sub] == nil && len(c.subs)+1 > most {
		c.note(ViolationManySubs, fmt.Sprintf("more than %d", most), req.Sub)
	}
	historic := 0
	for _, f := range req.Filters {
		if !f.LimitZero {
			historic++
		}
		c.inspectFilter(f, req.Sub)
	}
	if historic > 0 && len(req.Filters) > 1 {
		c.note(ViolationHistoric, fmt.Sprintf("%d of %d filters", historic, len(req.Filters)), req.Sub)
	}
	if c.asking != "" && time.Since(c.askedAt) < openingTime {
		c.note(ViolationHurry, fmt.Sprintf("%v after %q", time.Since(c.askedAt), c.asking), req.Sub)
	}
	c.asking, c.askedAt = req.Sub, time.Now()
}

func (c *Conn) inspectNegOpen(req wire.Request) {
	if len(req.Filters) != 1 {
		c.note(ViolationManyFilters, fmt.Sprintf("%d in a NEG-OPEN", len(req.Filters)), req.Sub)
	}
	if most := or(c.info.MaxSubscriptions, maxSubs); c.negs[req.Sub] == nil && len(c.negs)+1 > most {
		c.note(ViolationManySubs, fmt.Sprintf("more than %d NEG sessions", most), req.Sub)
	}
	for _, f := range req.Filters {
		c.inspectFilter(f, req.Sub)
	}
}

func (c *Conn) inspectFilter(f nostr.Filter, sub string) {
	c.inspectList("ids", f.IDs, maxIDs, true, sub)
	c.inspectList("authors", f.Authors, filters.MaxValues, true, sub)
	if f.Kinds != nil && len(f.Kinds) == 0 {
		c.note(ViolationEmptyList, "kinds", sub)
	}
	if len(f.Tags) > maxTagNames {
		c.note(ViolationManyTagNames, fmt.Sprintf("%d, more than %d", len(f.Tags), maxTagNames), sub)
	}
	for _, name := range sortedKeys(f.Tags) {
		values := f.Tags[name]
		if values == nil {
			values = []string{} // goes on the wire as an empty list
		}
		hex := name == "e" || name == "E" || name == "p" || name == "P"
		c.inspectList("#"+name, values, filters.MaxValues, hex, sub)
	}
}

func (c *Conn) inspectList(name string, values []string, most int, hex bool, sub string) {
	if values == nil {
		return
	}
	if len(values) == 0 {
		c.note(ViolationEmptyList, name, sub)
	}
	if len(values) > most {
		c.note(ViolationManyValues, fmt.Sprintf("%s: %d, more than %d", name, len(values), most), sub)
	}
	for _, v := range values {
		if _, err := graspsync.ParseEventID(v); hex && err != nil {
			c.note(ViolationValue, fmt.Sprintf("%s: %v", name, err), sub)
		} else if len(v) > maxValueLength {
			c.note(ViolationValue, fmt.Sprintf("%s: %d bytes, more than %d", name, len(v), maxValueLength), sub)
		}
	}
}

// or returns n, or def if n is 0.
func or(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}
