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

// KhatruDefaults is [Khatru] with the rate of policies.ApplySaneDefaults: per address 20 filters a minute
// after a burst of 100.
func KhatruDefaults() Behavior {
	b := Khatru()
	b.RateLimit, b.RateBurst = 20, 100
	return b
}

// khatru checks each filter in the order of the RejectFilter functions of ApplySaneDefaults.
var khatru = program{
	meter:      newWindow,
	authAge:    10 * time.Minute,
	negOff:     "failed to parse envelope: unknown envelope label",
	negLost:    "CLOSED",
	negInvalid: "failed to reconcile", // one of several messages of its library
	negRate:    slowDown,              // not a message of khatru
	negError:   true,
	malformed:  "failed to parse envelope: %v",
	overflow:   "error: you read too slowly", // not a message of khatru
	outcomes: map[string]outcome{
		archiveDuplicate: {true, ""},
		archiveDeleted:   {false, "blocked: this event has been deleted"},
		archiveOlder:     {true, ""},
	},
	req: []step{
		subsStep("blocked: too many subscriptions", false), bytesStep("blocked: too many subscriptions", false), // not messages of khatru
		countStep("blocked: too many filters"),
		func(c *Conn, req wire.Request, _ int) *refusal {
			for i, f := range req.Filters {
				if no := khatruFilter(c, f); no != nil {
					no.after = i
					return no
				}
			}
			return nil
		},
	},
	neg: []step{
		negsStep("blocked: too many subscriptions", false), // not a message of khatru
		func(c *Conn, req wire.Request, _ int) *refusal {
			for _, f := range req.Filters {
				if f.LimitZero {
					return &refusal{text: "invalid limit 0"}
				}
				if no := khatruFilter(c, f); no != nil {
					return no
				}
			}
			return nil
		},
		negMaxStep("blocked: too many query results", true), // not a limit of khatru
	},
}

var khatruAuth = authStep("auth-required: all requests must be authenticated", true)

func khatruFilter(c *Conn, f nostr.Filter) *refusal {
	if f.LimitZero {
		return nil
	}
	b := c.relay.behavior
	one := wire.Request{Filters: []nostr.Filter{f}}
	if no := khatruAuth(c, one, 0); no != nil {
		return no
	}
	switch {
	case b.RefuseKindless && (len(f.Kinds) == 0 || slices.Contains(f.Kinds, 1)) && len(f.Authors) == 0:
		return &refusal{text: "blocked: an author must be specified to get their kind:1 notes"}
	case b.RateLimit > 0 && !c.relay.source(b.RateBurst).take(time.Now(), b.RateLimit):
		text := "rate-limited: there is a bug in the client, no one should be making so many requests"
		return &refusal{text: text, notice: b.RateLimitNotice, rate: true}
	}
	b.RefuseKindless = false
	return b.refuseFilters(one.Filters)
}

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
