package relaytest

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Khatru is khatru 0.19.1 as NewRelay makes it: messages of 512,000 bytes, and no other
// limit, nothing of it in NIP-11, and NIP-77 switched off. What its package policies has
// is asked for by fields:
//
//	MustAuth              Auth: AuthRequired
//	FilterIPRateLimiter   RateLimit and RateBurst
//	NoComplexFilters      RefuseComplex
//	NoEmptyFilters        RefuseEmpty
//	AntiSyncBots          RefuseKindless
//	relay.Negentropy      Negentropy: NegOn
//
// How many events a filter finds is for the database behind it to say (Cap,
// DefaultLimit). The challenge comes with the refusal that wants an AUTH. A filter with
// limit 0 is not judged. If a later filter of a REQ is refused, the ones before it are
// followed all the same. A NEG session is forgotten after 7 s of silence.
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

// KhatruDefaults is [Khatru] with policies.ApplySaneDefaults: no complex filters, and 20
// filters a minute above the first 100 from one address.
func KhatruDefaults() Behavior {
	b := Khatru()
	b.RefuseComplex = true
	b.RateLimit, b.RateBurst = 20, 100
	return b
}

// khatru is the program behind [Khatru].
type khatru struct{}

var khatruManners = manners{
	meter:      newWindow,
	authAge:    10 * time.Minute,
	authWords:  func(string) string { return "error: failed to authenticate" },
	authRate:   "rate-limited: slow down, please",
	negOff:     "failed to parse envelope: unknown envelope label",
	negLost:    "CLOSED",
	negInvalid: "failed to reconcile", // of many texts of its library
	negError:   true,
	malformed:  "failed to parse envelope: %v",
	overflow:   "error: you read too slowly", // not of khatru
	wrongID:    "invalid: id is computed incorrectly",
	wrongSig:   "invalid: signature is invalid",
	eventRate:  "rate-limited: slow down, please",
	eventSize:  "blocked: event too large: %d", // not of khatru
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
		return &refusal{text: "blocked: too many subscriptions"} // not of khatru
	case exceeds(len(req.Filters), b.MaxFilters):
		return &refusal{text: "blocked: too many filters"} // not of khatru
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

// filter judges one filter, as its RejectFilter functions do in the order of
// ApplySaneDefaults.
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
		return &refusal{text: "blocked: too many subscriptions"} // not of khatru
	}
	for _, f := range req.Filters {
		if f.LimitZero {
			return &refusal{text: "invalid limit 0"}
		}
		if no := p.filter(c, f); no != nil {
			return no
		}
	}
	if b.NegMax > 0 && found() > b.NegMax { // not of khatru
		return &refusal{text: orText(b.NegText, "blocked: too many query results"), max: b.NegMax}
	}
	return nil
}

func (khatru) negSend(c *Conn) *refusal { return anyProgram{}.negSend(c) }

func (khatru) ended(*Conn, *subscription, int) []frame { return nil }

// bucket is a meter as khatru has it: it fills by what is asked, holds so much, and once
// a minute what may be asked in a minute flows off.
type bucket struct {
	most  int // 0: what may be asked in a minute
	level int
	since time.Time // of the last time that something flowed off
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
