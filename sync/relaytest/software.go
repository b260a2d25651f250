package relaytest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Software is the program that a [Relay] imitates: its messages, and how it sends them.
type Software uint8

// The zero Software is an imaginary program with common messages.
const (
	SoftwareAny Software = iota
	// SoftwareRustNostr is the relay of rust-nostr 0.45 (nostr-sdk, local_relay).
	SoftwareRustNostr
	// SoftwareStrfry is strfry.
	SoftwareStrfry
	// SoftwareKhatru is khatru 0.19 with messages of its package policies.
	SoftwareKhatru
)

// byNotice is the beginning of a refusal that is sent by NOTICE. Other refusals are sent by CLOSED
// or NEG-ERR.
const byNotice = "NOTICE "

// program contains the messages of a program. "%d" is the limit.
type program struct {
	auth, rate, id, subs, bytes, count string // refusals of a REQ, in the order of the checks
	filter                             string // beginning of the refusals of a filter
	negs, records                      string // refusals of a NEG-OPEN
	negOff, negLost, negInvalid        string // negOff is the NOTICE if NIP-77 is off
	malformed                          string
}

// programOf returns the messages of a program. It uses common ones where a program has none.
func programOf(s Software) program {
	p := program{
		auth:       "auth-required: all requests must be authenticated",
		rate:       "rate-limited: slow down, please",
		id:         "bad req: subscription id too long",
		subs:       strfrySubs,
		bytes:      "blocked: subscriptions too large",
		count:      "bad req: too many filters",
		filter:     "bad req: ",
		negs:       byNotice + "ERROR: too many concurrent NEG requests",
		records:    "blocked: too many query results",
		negOff:     "ERROR: bad msg: negentropy disabled",
		negLost:    "closed: unknown subscription handle",
		negInvalid: "PROTOCOL-ERROR",
		malformed:  "ERROR: bad msg: unparseable message",
	}
	switch s {
	case SoftwareRustNostr:
		p.auth = "auth-required: you must auth"
		p.rate = "rate-limited: too many queries"
		p.id = "blocked: subscription ID exceeds max length %d"
		p.subs = "rate-limited: too many REQs"
		p.bytes = "rate-limited: active subscriptions exceed max size %d bytes"
		p.count = "rate-limited: REQ exceeds max filter count %d"
		p.negs = "rate-limited: too many negentropy subscriptions"
		p.records = "rate-limited: too many negentropy items"
		p.negOff, p.malformed = "invalid client message", "invalid client message"
		p.negLost = "error: subscription not found"
		p.negInvalid = "error: invalid negentropy message"
	case SoftwareStrfry:
		p.auth = "ERROR: auth-required: requested filter requires authentication"
		p.id = "ERROR: bad req: invalid subscription id length"
		p.count = "ERROR: bad req: arr too big"
		p.filter = "ERROR: bad req: "
	case SoftwareKhatru:
		p.rate = "rate-limited: there is a bug in the client, no one should be making so many requests"
		p.subs, p.bytes, p.negs = "blocked: too many subscriptions", "blocked: too many subscriptions", "blocked: too many subscriptions"
		p.count = "blocked: too many filters"
		p.negOff, p.malformed = "failed to parse envelope: unknown envelope label", "failed to parse envelope"
		p.negLost = "CLOSED"
		p.negInvalid = "failed to reconcile" // one of several messages of its library
	}
	return p
}

const (
	strfrySubs = byNotice + "ERROR: too many concurrent REQs"
	overflow   = "error: live event buffer overflow; resubscribe to recover stored events"
)

// refusal is the answer to a request that a relay refuses.
type refusal struct {
	text      string
	notice    bool // NOTICE instead of CLOSED or NEG-ERR
	eose      bool // followed by EOSE
	rate      bool // because of the rate
	challenge bool // preceded by AUTH
	max       int  // maximum number of records in a NEG-ERR
	after     int  // number of filters accepted before
}

func refuse(text string, limit int) *refusal {
	text, notice := strings.CutPrefix(text, byNotice)
	return &refusal{text: strings.Replace(text, "%d", fmt.Sprint(limit), 1), notice: notice}
}

// refuse returns the refusal of a REQ or NEG-OPEN of size bytes, or nil.
func (c *Conn) refuse(req wire.Request, size int) *refusal {
	b, p := &c.relay.behavior, &c.relay.program
	live := req.Type == wire.TypeReq
	for _, f := range req.Filters {
		live = live && f.LimitZero
	}
	khatru := b.Software == SoftwareKhatru // whose checks are those of single filters
	switch {
	case live && khatru:
	case b.Auth >= AuthRequired && !c.authed:
		return &refusal{text: p.auth, challenge: b.Software != SoftwareAny}
	case b.Auth == AuthRestricted:
		return &refusal{text: "restricted: not on the list"}
	}
	if !khatru && !(live && b.Software == SoftwareAny) && !c.spend(rateQueries, b.RateLimit) {
		return &refusal{text: p.rate, notice: b.RateLimitNotice, rate: true}
	}
	if exceeds(len(req.Sub), b.MaxSubID) {
		return refuse(p.id, b.MaxSubID)
	}
	if req.Type == wire.TypeNegOpen {
		return c.refuseNegOpen(req)
	}
	subs, bytes := c.openSubs(req.Sub)
	switch {
	case c.subs[req.Sub] == nil && exceeds(subs+1, b.MaxSubs):
		return refuse(p.subs, b.MaxSubs)
	case exceeds(bytes+size, b.MaxSubBytes):
		return refuse(p.bytes, b.MaxSubBytes)
	case exceeds(len(req.Filters), b.MaxFilters):
		return refuse(p.count, b.MaxFilters)
	}
	for i, f := range req.Filters {
		if no := c.refuseFilter(f); no != nil {
			if khatru {
				no.after = i
			}
			return no
		}
	}
	return nil
}

func (c *Conn) refuseNegOpen(req wire.Request) *refusal {
	b, p := &c.relay.behavior, &c.relay.program
	if most := or(b.MaxNegs, b.MaxSubs); c.negs[req.Sub] == nil && exceeds(len(c.negs)+1, most) {
		return refuse(p.negs, most)
	}
	if f := req.Filters[0]; b.Software == SoftwareStrfry || b.Software == SoftwareKhatru {
		if no := c.refuseFilter(f); no != nil {
			no.notice = no.notice || b.Software == SoftwareStrfry
			return no
		}
	}
	no := &refusal{text: or(b.NegText, p.records), max: b.NegMax}
	n := len(c.relay.query(req.Filters[0]))
	if b.Software == SoftwareRustNostr { // which adds the other sessions
		no.max = 0
		for id, s := range c.negs {
			if id != req.Sub {
				n += s.items
			}
		}
	}
	if exceeds(n, b.NegMax) {
		return no
	}
	return nil
}

func (c *Conn) refuseFilter(f nostr.Filter) *refusal {
	b, p := &c.relay.behavior, &c.relay.program
	kindless := len(f.Kinds)+len(f.Authors)+len(f.IDs) == 0
	if b.Software == SoftwareKhatru {
		if f.LimitZero {
			return nil
		}
		if b.RateLimit > 0 && !c.relay.source.take(time.Now(), b.RateLimit, or(b.RateBurst, b.RateLimit)) {
			return &refusal{text: p.rate, notice: b.RateLimitNotice, rate: true}
		}
		// the filters that AntiSyncBots refuses
		kindless = (len(f.Kinds) == 0 || slices.Contains(f.Kinds, 1)) && len(f.Authors) == 0
	}
	switch {
	case b.RefuseKindless && kindless:
		return &refusal{text: "blocked: an author must be specified to get their kind:1 notes"}
	case exceeds(len(f.Kinds), b.RefuseKindsOver):
		return &refusal{text: p.filter + "filter validation failed: too many kinds in filter: " + fmt.Sprint(len(f.Kinds))}
	case exceeds(len(f.Tags), b.RefuseTagNamesOver):
		return &refusal{text: p.filter + "too many tags in filter"}
	}
	for _, l := range lists(f) {
		if l.tag && exceeds(len(l.items), b.RefuseTagValuesOver) {
			return &refusal{text: "too many tag values", notice: true, eose: true}
		}
		size := 0
		for _, v := range l.items {
			if l.tag && exceeds(len(v), b.RefuseValueOver) {
				return &refusal{text: p.filter + "filter item too large"}
			}
			size += len(v)
		}
		if exceeds(size, b.RefuseSetOver) {
			return &refusal{text: p.filter + "total filter items too large"}
		}
	}
	return nil
}

// list is a list of values of a filter.
type list struct {
	name  string
	tag   bool
	items []string
}

// lists returns the lists of a filter except kinds, ordered by name.
func lists(f nostr.Filter) []list {
	var all []list
	for _, name := range sortedKeys(f.Tags) {
		all = append(all, list{name: "#" + name, tag: true, items: f.Tags[name]})
	}
	return append(all, list{name: "authors", items: f.Authors}, list{name: "ids", items: f.IDs})
}

// rate is a class of messages with a limit per minute.
type rate uint8

const (
	rateQueries rate = iota
	rateNegs
	rateMessages
)

// meter limits a rate.
type meter interface {
	// take counts a message and reports whether it is within the rate.
	take(now time.Time, perMinute int) bool
}

// window is a meter over the last 60 seconds. Refused messages do not count.
type window []time.Time

func (w *window) take(now time.Time, perMinute int) bool {
	for len(*w) > 0 && now.Sub((*w)[0]) >= time.Minute {
		*w = (*w)[1:]
	}
	if len(*w) >= perMinute {
		return false
	}
	*w = append(*w, now)
	return true
}
