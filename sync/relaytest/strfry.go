package relaytest

import (
	"fmt"
	"slices"
	"strings"

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
	b.setLimits(200, 128<<10)
	return b
}

// setLimits sets the limits that operators usually change.
func (b *Behavior) setLimits(subs, message int) {
	b.MaxSubs, b.Info.MaxSubscriptions = subs, subs
	b.MaxMessage, b.Info.MaxMessageLength = message, message
}

// StrfryNosLol is strfry as on nos.lol: 20 subscriptions.
func StrfryNosLol() Behavior {
	b := Strfry()
	b.setLimits(20, 128<<10)
	return b
}

// StrfryDamus is strfry as on relay.damus.io: messages of 1,000,000 bytes.
func StrfryDamus() Behavior {
	b := Strfry()
	b.setLimits(200, 1_000_000)
	return b
}

// StrfryPrimal is strfry 1.0.3 as on relay.primal.net: 20 subscriptions, messages of 1,000,000
// bytes, refusals by NOTICE, and at most 20 filters. It lists NIP-77 and does not support it.
func StrfryPrimal() Behavior {
	b := Strfry()
	b.Software = SoftwareOldStrfry
	b.MaxSubID = 71
	b.MaxFilters = 20
	b.Negentropy = NegNotice
	b.setLimits(20, 1_000_000)
	return b
}

// StrfryValidating is [Strfry] with filterValidation: 3 filters in a REQ, 3 kinds in a filter.
func StrfryValidating() Behavior {
	b := Strfry()
	b.ValidFilters, b.ValidKinds = 3, 3
	return b
}

const strfrySubs = "ERROR: too many concurrent REQs"

var strfryAuth = authStep("ERROR: auth-required: requested filter requires authentication", true)

// strfry is strfry since 1.1.
var strfry = program{
	meter:      newWindow,
	negOff:     "ERROR: bad msg: negentropy disabled",
	negLost:    "closed: unknown subscription handle",
	negInvalid: "PROTOCOL-ERROR",
	negRate:    slowDown, // not a message of strfry
	malformed:  "ERROR: bad msg: unparseable message",
	overflow:   "error: you read too slowly", // not a message of strfry
	outcomes: map[string]outcome{
		archiveDuplicate: {true, "duplicate: have this event"},
		archiveDeleted:   {false, "deleted: user requested deletion"},
		archiveOlder:     {false, "replaced: have newer event"},
	},
	req: []step{
		strfryBad(strfryCount), strfryBad(strfryParse), strfryBad(strfryValid), strfryAuth, strfryBad(strfryID), rateStep(slowDown),
		limitStep(strfrySubs, true, func(c *Conn, b *Behavior, req wire.Request, _ int) (n, most int) {
			for id, s := range c.subs {
				if id != req.Sub && !s.ended {
					n++
				}
			}
			return n + 1, b.MaxSubs
		}),
		bytesStep(strfrySubs, true),
		otherStep(func(b *Behavior) { b.RefuseTagNamesOver, b.RefuseValueOver, b.RefuseSetOver = 0, 0, 0 }),
	},
	neg: []step{
		strfryNeg(strfryParse), authStep("auth-required: requested filter requires authentication", true), strfryNeg(strfryID), rateStep(slowDown),
		negsStep("ERROR: too many concurrent NEG requests", true), negMaxStep("blocked: too many query results", true),
	},
	ended: func(c *Conn, s *subscription) []frame { // there are too many
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
		return []frame{{msg: wire.Message{Type: wire.TypeNotice, Text: strfrySubs}}}
	},
}

// A strfryCheck returns why a request is invalid, or "".
type strfryCheck func(b *Behavior, req wire.Request) string

func strfryBad(check strfryCheck) step {
	return func(c *Conn, req wire.Request, _ int) *refusal {
		b := &c.relay.behavior
		if why := check(b, req); why != "" {
			return &refusal{text: "ERROR: bad req: " + why, notice: b.isOld() || b.RefuseByNotice}
		}
		return nil
	}
}

func strfryNeg(check strfryCheck) step {
	return func(c *Conn, req wire.Request, _ int) *refusal {
		if why := check(&c.relay.behavior, req); why != "" {
			return &refusal{text: "ERROR: negentropy error: " + why, notice: true}
		}
		return nil
	}
}

func (b *Behavior) isOld() bool { return b.Software == SoftwareOldStrfry }

func strfryCount(b *Behavior, req wire.Request) string {
	switch {
	case len(req.Filters) == 0:
		return "arr too small"
	case exceeds(len(req.Filters), b.MaxFilters):
		return "arr too big"
	}
	return ""
}

func strfryID(b *Behavior, req wire.Request) string {
	switch id := req.Sub; {
	case b.isOld() && exceeds(len(id), b.MaxSubID):
		return "subscription id too long"
	case b.isOld() && id == "":
		return "subscription id too short"
	case id == "" || exceeds(len(id), b.MaxSubID):
		return "invalid subscription id length"
	case strings.ContainsFunc(id, func(c rune) bool { return c < 0x20 || c == '\\' || c == '"' || c >= 0x7f }):
		return "invalid character in subscription id"
	}
	return ""
}

func strfryParse(b *Behavior, req wire.Request) string {
	for _, f := range req.Filters {
		for _, l := range lists(f) {
			if why := l.strfry(b); why != "" && b.isOld() {
				return why
			} else if why != "" {
				return fmt.Sprintf("error parsing %s: %s", l.name, why)
			}
		}
		switch {
		case exceeds(len(f.Tags), b.RefuseTagNamesOver):
			return "too many tags in filter"
		case f.Search != "" && b.isOld():
			return "unrecognised filter item"
		case f.Search != "":
			return "unrecognised filter item: search"
		}
	}
	return ""
}

// strfry returns why a list is invalid, or "". Keys and ids are stored in 32 bytes, also in #e and
// #p, but not in #E and #q.
func (l list) strfry(b *Behavior) string {
	if l.tag && l.name != "#e" && l.name != "#p" {
		return l.large(b, l.bytes())
	}
	for _, v := range l.items {
		switch {
		case len(v) < 64:
			return "filter item too small"
		case len(v) > 64:
			return "filter item too large"
		}
	}
	return l.large(b, l.bytes()/2)
}

// strfryValid is strfry's filterValidation. It ignores filters with an empty list, which match nothing.
func strfryValid(b *Behavior, req wire.Request) string {
	if b.ValidFilters == 0 || b.isOld() {
		return ""
	}
	fs := slices.DeleteFunc(slices.Clone(req.Filters), findsNothing)
	if n := len(fs); n < 1 || n > b.ValidFilters {
		return fmt.Sprintf("filter validation failed: invalid number of filters: %d", n)
	}
	for _, f := range fs {
		if n := len(f.Kinds); exceeds(n, b.ValidKinds) {
			return fmt.Sprintf("filter validation failed: too many kinds in filter: %d", n)
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
