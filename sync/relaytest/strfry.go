package relaytest

import (
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Strfry returns the behavior of strfry 1.1.1 with default settings:
//
//	200 subscriptions, and separately 200 NEG sessions
//	200 filters in a REQ, 3 tag names in a filter, 500 events for a filter
//	values of 255 bytes, 65,535 bytes of values in a list
//	1,000,000 records to reconcile, answers of 500,000 bytes
//	messages of 128 KiB, events of 64 KiB, subscription ids of 64 bytes
//
// It has no rate limits. It refuses a REQ by CLOSED with "ERROR: bad req:" and the reason; one bad
// value refuses the whole REQ. If there are too many subscriptions, it still sends the stored
// events and then a NOTICE without id, and no live events. The NIP-11 document contains the number
// of subscriptions, the limit of a filter, and the maximum length of a message.
func Strfry() Behavior {
	b := Behavior{
		Software: SoftwareStrfry,
		Info: wire.Info{
			Software: "git+https://github.com/hoytech/strfry.git",
			NIPs:     []int{1, 2, 4, 9, 11, 28, 40, 45, 70, 77},
			MaxLimit: 500,
		},
		Cap:        500,
		MaxFilters: 200,
		Bounds:     Bounds{MaxSubID: 64, MaxEvent: 64 << 10},
		Refusals: Refusals{
			RefuseTagNamesOver: 3,
			RefuseValueOver:    255,
			RefuseSetOver:      65_535,
		},
		Reconciling: Reconciling{
			NegMax:   1_000_000,
			NegFrame: 500_000,
		},
	}
	return b.strfryLimits(200, 128<<10)
}

// StrfryNosLol is strfry 1.1.0 as on nos.lol in August 2026: 20 subscriptions.
func StrfryNosLol() Behavior {
	b := Strfry()
	return b.strfryLimits(20, 128<<10)
}

// StrfryDamus is strfry 1.1.0 as on relay.damus.io in August 2026: messages of 1,000,000 bytes.
func StrfryDamus() Behavior {
	b := Strfry()
	return b.strfryLimits(200, 1_000_000)
}

// StrfryPrimal is strfry 1.0.3 as on relay.primal.net in August 2026: 20 subscriptions, messages of
// 1,000,000 bytes, refusals by NOTICE without id, and at most 20 filters, for which 1.0.3 has no
// setting. It lists NIP-77 and does not support it.
func StrfryPrimal() Behavior {
	b := Strfry()
	b.Software = SoftwareOldStrfry
	b.MaxSubID = 71
	b.MaxFilters = 20
	b.Negentropy = NegNotice
	return b.strfryLimits(20, 1_000_000)
}

// StrfryValidating is [Strfry] with filterValidation: 3 filters in a REQ, 3 kinds in a filter.
func StrfryValidating() Behavior {
	b := Strfry()
	b.Validation = &FilterValidation{MaxFilters: 3, MaxKinds: 3}
	return b
}

// FilterValidation has the optional limits of strfry for REQs. They do not apply to NIP-77.
type FilterValidation struct {
	// MaxFilters is the maximum number of filters in a REQ.
	MaxFilters int
	// MaxKinds is the maximum number of kinds in a filter.
	MaxKinds int
	// AllowedKinds are the kinds that a filter may name; nil allows all.
	AllowedKinds []int
	// RequireAuthorOrTag requires exactly one author, p tag or e tag in each filter.
	RequireAuthorOrTag bool
}

type strfry struct{ old bool }

var strfryManners = manners{
	meter:      newWindow,
	authRate:   "rate-limited: slow down, please", // not a message of strfry
	authed:     "successfully authenticated",
	negOff:     "ERROR: bad msg: negentropy disabled",
	negLost:    "closed: unknown subscription handle",
	negInvalid: "PROTOCOL-ERROR",
	malformed:  "ERROR: bad msg: unparseable message",
	overflow:   "error: you read too slowly", // not a message of strfry
	wrongID:    "invalid: bad event id",
	wrongSig:   "invalid: bad signature",
	eventRate:  "rate-limited: slow down, please", // not a message of strfry
	eventSize:  "invalid: event too large: %d",
	outcomes: map[string]outcome{
		archiveDuplicate: {true, "duplicate: have this event"},
		archiveDeleted:   {false, "deleted: user requested deletion"},
		archiveOlder:     {false, "replaced: have newer event"},
	},
	authWords: func(fault string) string {
		switch fault {
		case faultKind:
			return "error: wrong event kind, expected 22242"
		case faultChallenge:
			return "error: challenge string mismatch"
		case faultRelay:
			return "error: incorrect or missing relay tag"
		case faultTime:
			return "error: created_at too early"
		}
		return "error: bad signature"
	},
}

func (strfry) manners() *manners { return &strfryManners }

func (p strfry) request(c *Conn, req wire.Request, size int) *refusal {
	b := &c.relay.behavior
	if len(req.Filters) == 0 {
		return p.bad(b, "arr too small")
	}
	if exceeds(len(req.Filters), b.MaxFilters) {
		return p.bad(b, "arr too big")
	}
	for _, f := range req.Filters {
		if why := p.parse(b, f); why != "" {
			return p.bad(b, why)
		}
	}
	if why := b.Validation.judge(req.Filters); why != "" && !p.old {
		return p.bad(b, "filter validation failed: "+why)
	}
	if before, after := c.wantsAuth(); before || after {
		return &refusal{text: "ERROR: auth-required: requested filter requires authentication", challenge: before}
	}
	if why := p.id(b, req.Sub); why != "" {
		return p.bad(b, why)
	}
	if !c.spend(rateQueries, b.RateLimit) {
		return &refusal{text: "rate-limited: slow down, please", notice: b.RateLimitNotice, rate: true}
	}
	running := 0
	for id, s := range c.subs {
		if id != req.Sub && !s.ended {
			running++
		}
	}
	_, open := c.openSubs(req.Sub)
	if b.MaxSubs > 0 && running >= b.MaxSubs || exceeds(open+size, b.MaxSubBytes) {
		return &refusal{text: "ERROR: too many concurrent REQs", notice: true}
	}
	return b.refuseOther(req.Filters)
}

// ended closes a subscription after its EOSE if there are too many.
func (strfry) ended(c *Conn, s *subscription, _ int) []frame {
	following := 0
	for _, other := range c.subs {
		if other != s && other.ended {
			following++
		}
	}
	if most := c.relay.behavior.MaxSubs; most == 0 || following < most {
		return nil
	}
	if c.subs[s.id] == s {
		delete(c.subs, s.id)
	}
	return []frame{{msg: wire.Message{Type: wire.TypeNotice, Text: "ERROR: too many concurrent REQs"}}}
}

func (p strfry) negOpen(c *Conn, req wire.Request, found func() int) *refusal {
	b := &c.relay.behavior
	no := func(why string) *refusal { return &refusal{text: "ERROR: negentropy error: " + why, notice: true} }
	for _, f := range req.Filters {
		if why := p.parse(b, f); why != "" {
			return no(why)
		}
	}
	if before, after := c.wantsAuth(); before || after {
		return &refusal{text: "auth-required: requested filter requires authentication", challenge: before}
	}
	if why := p.id(b, req.Sub); why != "" {
		return no(why)
	}
	if !c.spend(rateQueries, b.RateLimit) {
		return &refusal{text: "rate-limited: slow down, please", notice: b.RateLimitNotice, rate: true}
	}
	if c.tooManyNegs(req.Sub) {
		return &refusal{text: "ERROR: too many concurrent NEG requests", notice: true}
	}
	if b.NegMax > 0 && found() > b.NegMax {
		return &refusal{text: orText(b.NegText, "blocked: too many query results"), max: b.NegMax}
	}
	return nil
}

func (strfry) negSend(c *Conn) *refusal { return anyProgram{}.negSend(c) }

func (p strfry) bad(b *Behavior, why string) *refusal {
	return &refusal{text: "ERROR: bad req: " + why, notice: p.old || b.RefuseByNotice}
}

// id returns why a subscription id is invalid, or "".
func (p strfry) id(b *Behavior, id string) string {
	switch {
	case p.old && exceeds(len(id), b.MaxSubID):
		return "subscription id too long"
	case p.old && id == "":
		return "subscription id too short"
	case id == "" || exceeds(len(id), b.MaxSubID):
		return "invalid subscription id length"
	case slices.ContainsFunc([]byte(id), func(c byte) bool { return c < 0x20 || c == '\\' || c == '"' || c >= 0x7f }):
		return "invalid character in subscription id"
	}
	return ""
}

// parse returns why a filter is invalid, or "".
func (p strfry) parse(b *Behavior, f nostr.Filter) string {
	for _, l := range lists(f) {
		if why := l.strfry(b); why != "" {
			if p.old {
				return why
			}
			return fmt.Sprintf("error parsing %s: %s", l.name, why)
		}
	}
	if exceeds(len(f.Tags), b.RefuseTagNamesOver) {
		return "too many tags in filter"
	}
	if f.Search != "" {
		if p.old {
			return "unrecognised filter item"
		}
		return "unrecognised filter item: search"
	}
	return ""
}

// strfry returns why a list is invalid, or "". Keys and ids are stored in 32 bytes, also in #e and
// #p, but not in #E and #q.
func (l list) strfry(b *Behavior) string {
	binary := !l.tag || l.name == "#e" || l.name == "#p"
	for _, v := range l.items {
		switch {
		case binary && len(v) < 64:
			return "filter item too small"
		case binary && len(v) > 64 || !binary && exceeds(len(v), b.RefuseValueOver):
			return "filter item too large"
		}
	}
	size := l.bytes()
	if binary {
		size /= 2
	}
	if exceeds(size, b.RefuseSetOver) {
		return "total filter items too large"
	}
	return ""
}

// judge returns why the filters of a REQ are invalid, or "". It ignores filters with an empty list,
// which match nothing.
func (v *FilterValidation) judge(fs []nostr.Filter) string {
	if v == nil {
		return ""
	}
	fs = slices.DeleteFunc(slices.Clone(fs), findsNothing)
	if n := len(fs); n < 1 || exceeds(n, v.MaxFilters) {
		return fmt.Sprintf("invalid number of filters: %d", n)
	}
	for _, f := range fs {
		if n := len(f.Kinds); exceeds(n, v.MaxKinds) {
			return fmt.Sprintf("too many kinds in filter: %d", n)
		}
		for _, k := range f.Kinds {
			if v.AllowedKinds != nil && !slices.Contains(v.AllowedKinds, k) {
				return fmt.Sprintf("kind not allowed: %d", k)
			}
		}
		if v.RequireAuthorOrTag && len(f.Authors) != 1 && len(f.Tags["p"]) != 1 && len(f.Tags["e"]) != 1 {
			return "filter must have exactly one author, p tag, or e tag"
		}
	}
	return ""
}

func findsNothing(f nostr.Filter) bool {
	if f.IDs != nil && len(f.IDs) == 0 || f.Authors != nil && len(f.Authors) == 0 || f.Kinds != nil && len(f.Kinds) == 0 {
		return true
	}
	for _, values := range f.Tags {
		if len(values) == 0 {
			return true
		}
	}
	return false
}
