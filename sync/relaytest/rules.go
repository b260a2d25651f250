package relaytest

import (
	"cmp"
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/wire"
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

// note records a violation. The caller holds relay.mu.
func (c *Conn) note(kind ViolationKind, detail, sub string) {
	v := Violation{At: time.Now(), Kind: kind, Conn: c.id, Sub: sub, Detail: detail}
	c.relay.violations = remember(c.relay.violations, v)
}

// inspection notes the violations of a message about a subscription.
type inspection struct {
	*Conn
	sub string
}

func (i inspection) when(violated bool, kind ViolationKind, format string, args ...any) {
	if violated {
		i.note(kind, fmt.Sprintf(format, args...), i.sub)
	}
}

func (i inspection) atMost(most int, kind ViolationKind, what string, n int) {
	i.when(n > most, kind, "%s: %d, more than %d", what, n, most)
}

// inspect checks a message by the rules. The caller holds relay.mu.
func (c *Conn) inspect(req wire.Request, size int) {
	i := inspection{c, req.Sub}
	i.atMost(or(c.info.MaxMessageLength, maxMessage), ViolationMessageSize, "bytes", size)
	subsLimit := or(c.info.MaxSubscriptions, maxSubs)
	switch req.Type {
	case wire.TypeReq:
		i.id(c.usedSubs)
		if c.subs[req.Sub] == nil {
			i.atMost(subsLimit, ViolationManySubs, "subscriptions", len(c.subs)+1)
		}
		i.req(req.Filters)
	case wire.TypeNegOpen:
		i.id(c.usedNegs)
		if c.negs[req.Sub] == nil {
			i.atMost(subsLimit, ViolationManySubs, "NEG sessions", len(c.negs)+1)
		}
		i.when(len(req.Filters) != 1, ViolationManyFilters, "%d in a NEG-OPEN", len(req.Filters))
	case wire.TypeNegSend:
		i.when(!c.usedNegs[req.Sub], ViolationNegUnknown, "NEG-MSG")
		s := c.negs[req.Sub]
		i.when(s != nil && s.inFlight, ViolationNegOverlap, "NEG-MSG before the last answer")
	case wire.TypeAnswer:
		i.when(len(c.challenges) == 0 || c.authed, ViolationAuth, "without a challenge, or again")
	}
	for _, f := range req.Filters {
		i.filter(f)
	}
}

func (i inspection) id(used map[string]bool) {
	i.when(i.sub == "" || len(i.sub) > or(i.info.MaxSubIDLength, maxSubID), ViolationSubID, "%d bytes", len(i.sub))
	i.when(used[i.sub], ViolationReusedID, "used before")
	used[i.sub] = true
	since := time.Since(i.refusedAt)
	i.when(!i.refusedAt.IsZero() && since < coolDown, ViolationCoolDown, "%v after the refusal", since)
}

func (i inspection) req(fs []nostr.Filter) {
	i.when(len(fs) == 0, ViolationNoFilters, "REQ")
	i.atMost(or(i.info.MaxFilters, maxFilters), ViolationManyFilters, "filters", len(fs))
	historic := 0
	for _, f := range fs {
		// A relay that refuses limit 0 is followed live since a moment ago. Clocks may differ by a day.
		if live := f.LimitZero || f.Limit == 0 && f.Since != nil && time.Since(f.Since.Time()) < liveSince; !live {
			historic++
		}
	}
	i.when(historic > 0 && len(fs) > 1, ViolationHistoric, "%d of %d filters", historic, len(fs))
	since := time.Since(i.askedAt)
	i.when(i.asking != "" && since < openingTime, ViolationHurry, "%v after %q", since, i.asking)
	i.asking, i.askedAt = i.sub, time.Now()
}

func (i inspection) filter(f nostr.Filter) {
	i.when(f.Kinds != nil && len(f.Kinds) == 0, ViolationEmptyList, "kinds")
	i.atMost(maxTagNames, ViolationManyTagNames, "tag names", len(f.Tags))
	for _, l := range lists(f) {
		if l.items == nil && !l.tag {
			continue
		}
		i.when(len(l.items) == 0, ViolationEmptyList, "%s", l.name)
		most := filters.MaxValues
		if l.name == "ids" {
			most = maxIDs
		}
		i.atMost(most, ViolationManyValues, l.name, len(l.items))
		hex := !l.tag || l.name == "#e" || l.name == "#E" || l.name == "#p" || l.name == "#P"
		for _, v := range l.items {
			_, err := graspsync.ParseEventID(v)
			i.when(hex && err != nil, ViolationValue, "%s: %v", l.name, err)
			i.when(len(v) > maxValueLength, ViolationValue, "%s: %d bytes, more than %d", l.name, len(v), maxValueLength)
		}
	}
}

// or returns v, or def if v is zero.
func or[T comparable](v, def T) T { return cmp.Or(v, def) }
