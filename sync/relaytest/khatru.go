package relaytest

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Khatru returns the behavior of khatru 0.19.1 after NewRelay: messages of at most 512,000 bytes,
// no other limit, no limits in NIP-11, and no NIP-77. Fields correspond to its package policies:
//
//	MustAuth              Auth: AuthRequired
//	FilterIPRateLimiter   RateLimit and RateBurst
//	NoComplexFilters      RefuseComplex
//	NoEmptyFilters        RefuseEmpty
//	AntiSyncBots          RefuseKindless
//	relay.Negentropy      Negentropy: NegOn
//
// The database limits the number of events (Cap, DefaultLimit). The challenge is sent with the
// refusal that requires AUTH. Filters with limit 0 are not checked. If a filter of a REQ is
// refused, earlier filters still receive live events. A NEG session ends after 7 s without a
// message.
func Khatru() Behavior {
	return Behavior{
		Software:   SoftwareKhatru,
		Info:       wire.Info{Software: "https://github.com/fiatjaf/khatru", NIPs: []int{1, 11, 42, 70, 86}},
		MaxMessage: 512_000,
		Negentropy: NegNotice,
		Reconciling: Reconciling{
			NegFrame:   1 << 20,
			NegTimeout: 7 * time.Second,
		},
	}
}

// KhatruDefaults is [Khatru] with policies.ApplySaneDefaults: no complex filters, and per address
// 20 filters a minute after a burst of 100.
func KhatruDefaults() Behavior {
	b := Khatru()
	b.RefuseComplex = true
	b.RateLimit, b.RateBurst = 20, 100
	return b
}

type khatru struct{}

var khatruManners = manners{
	meter:      newWindow,
	authAge:    10 * time.Minute,
	authWords:  func(string) string { return "error: failed to authenticate" },
	authRate:   "rate-limited: slow down, please",
	negOff:     "failed to parse envelope: unknown envelope label",
	negLost:    "CLOSED",
	negInvalid: "failed to reconcile", // one of several messages of its library
	negError:   true,
	malformed:  "failed to parse envelope: %v",
	overflow:   "error: you read too slowly", // not a message of khatru
	wrongID:    "invalid: id is computed incorrectly",
	wrongSig:   "invalid: signature is invalid",
	eventRate:  "rate-limited: slow down, please",
	eventSize:  "blocked: event too large: %d", // not a message of khatru
	outcomes: map[string]outcome{
		archiveDuplicate: {true, ""},
		archiveDeleted:   {false, "blocked: this event has been deleted"},
		archiveOlder:     {true, ""},
	},
}

func (khatru) manners() *manners { return &khatruManners }

func (p khatru) request(c *Conn, req wire.Request, size int) *refusal {
	b := &c.relay.behavior
	switch subs, open := c.openSubs(req.Sub); {
	case b.MaxSubs > 0 && c.subs[req.Sub] == nil && subs >= b.MaxSubs, exceeds(open+size, b.MaxSubBytes):
		return &refusal{text: "blocked: too many subscriptions"} // not a message of khatru
	case exceeds(len(req.Filters), b.MaxFilters):
		return &refusal{text: "blocked: too many filters"} // not a message of khatru
	}
	for i, f := range req.Filters {
		if f.LimitZero {
			continue
		}
		if no := p.filter(c, f); no != nil {
			no.after = i
			return no
		}
	}
	return nil
}

// filter checks a filter in the order of the RejectFilter functions of ApplySaneDefaults.
func (khatru) filter(c *Conn, f nostr.Filter) *refusal {
	b := &c.relay.behavior
	before, after := c.wantsAuth()
	switch {
	case before:
		return &refusal{text: "auth-required: all requests must be authenticated", challenge: true}
	case after:
		return &refusal{text: "restricted: not on the list"}
	case b.RefuseComplex && complexFilter(f):
		return &refusal{text: "blocked: too many things to filter for"}
	case b.RefuseEmpty && emptyFilter(f):
		return &refusal{text: "blocked: can't handle empty filters"}
	case b.RefuseKindless && (len(f.Kinds) == 0 || slices.Contains(f.Kinds, 1)) && len(f.Authors) == 0:
		return &refusal{text: "blocked: an author must be specified to get their kind:1 notes"}
	case b.RateLimit > 0 && !c.relay.source(b.RateBurst).take(time.Now(), b.RateLimit):
		text := "rate-limited: there is a bug in the client, no one should be making so many requests"
		return &refusal{text: text, notice: b.RateLimitNotice, rate: true}
	}
	return b.refuseOther([]nostr.Filter{f})
}

func (p khatru) negOpen(c *Conn, req wire.Request, found func() int) *refusal {
	b := &c.relay.behavior
	if c.tooManyNegs(req.Sub) {
		return &refusal{text: "blocked: too many subscriptions"} // not a message of khatru
	}
	for _, f := range req.Filters {
		if f.LimitZero {
			return &refusal{text: "invalid limit 0"}
		}
		if no := p.filter(c, f); no != nil {
			return no
		}
	}
	if b.NegMax > 0 && found() > b.NegMax { // not a limit of khatru
		return &refusal{text: orText(b.NegText, "blocked: too many query results"), max: b.NegMax}
	}
	return nil
}

func (khatru) negSend(c *Conn) *refusal { return anyProgram{}.negSend(c) }

func (khatru) ended(*Conn, *subscription, int) []frame { return nil }

// bucket is khatru's meter. Each request fills it by one, up to most, and once a minute the
// allowance of a minute flows off.
type bucket struct {
	most  int // 0: the allowance of a minute
	level int
	since time.Time // time of the last outflow
}

func (b *bucket) take(now time.Time, perMinute int) bool {
	if b.since.IsZero() {
		b.since = now
	}
	for ; now.Sub(b.since) >= time.Minute; b.since = b.since.Add(time.Minute) {
		b.level = max(0, b.level-perMinute)
	}
	if b.level >= or(b.most, perMinute) {
		return false
	}
	b.level++
	return true
}
