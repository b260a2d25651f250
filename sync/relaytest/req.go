package relaytest

import (
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// refusal is how a request is turned down.
type refusal struct {
	text   string
	notice bool // NOTICE instead of CLOSED or NEG-ERR
	eose   bool // and EOSE after it
	rate   bool // it is about the rate
}

// request answers a REQ.
func (c *Conn) request(req wire.Request) {
	r := c.relay
	scripted := r.scriptedRefusal(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.closed {
		return
	}
	no := c.refuseAny(countsAgainstRate(req))
	if no == nil && r.behavior.MaxSubs > 0 && c.subs[req.Sub] == nil && len(c.subs) >= r.behavior.MaxSubs {
		no = &refusal{text: "ERROR: too many concurrent REQs", notice: true}
	}
	if no == nil {
		no = r.behavior.refuseFilters(req.Filters)
	}
	if no == nil {
		no = scripted
	}
	if no == nil {
		c.subscribe(req, nil)
		return
	}
	b := &r.behavior
	if b.RefuseByNotice && !no.notice {
		no.notice, no.text = true, "ERROR: "+no.text
	}
	if no.notice {
		frames := []frame{c.refused(wire.Message{Type: wire.TypeNotice, Text: no.text}, no)}
		if no.eose {
			frames = append(frames, frame{msg: wire.Message{Type: wire.TypeEOSE, Sub: req.Sub}})
		}
		c.push(&answer{frames: frames, due: c.soon()})
		return
	}
	closed := c.refused(wire.Message{Type: wire.TypeClosed, Sub: req.Sub, Text: no.text}, no)
	if b.EventsAfterClosed {
		c.subscribe(req, &closed)
		return
	}
	c.drop(req.Sub, 0)
	c.push(&answer{frames: []frame{closed}, due: c.soon()})
}

// refused makes the frame of a refusal; one about the rate starts the time in
// which nothing should be asked.
func (c *Conn) refused(m wire.Message, no *refusal) frame {
	f := frame{msg: m}
	if no.rate {
		f.sent = func() { c.refusedAt = time.Now() }
	}
	return f
}

// scriptedRefusal asks the functions of the behavior. relay.mu is not held.
func (r *Relay) scriptedRefusal(req wire.Request) *refusal {
	b := r.Behavior()
	if b.NoticeInstead != nil {
		if text := b.NoticeInstead(req); text != "" {
			return &refusal{text: text, notice: true}
		}
	}
	if b.NoticeThenEOSE != nil {
		if text := b.NoticeThenEOSE(req); text != "" {
			return &refusal{text: text, notice: true, eose: true}
		}
	}
	if b.ClosedReason != nil {
		if text := b.ClosedReason(req); text != "" {
			return &refusal{text: text}
		}
	}
	return nil
}

// refuseAny refuses what is refused whatever it asks for. relay.mu is held.
func (c *Conn) refuseAny(counts bool) *refusal {
	b := &c.relay.behavior
	switch {
	case b.Auth >= AuthRequired && !c.authed:
		return &refusal{text: "auth-required: all requests must be authenticated"}
	case b.Auth == AuthRestricted:
		return &refusal{text: "restricted: not on the list"}
	}
	if b.RateLimit == 0 || !counts {
		return nil
	}
	now := time.Now()
	c.recent = slices.DeleteFunc(c.recent, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	if len(c.recent) >= b.RateLimit {
		no := &refusal{text: "rate-limited: slow down, please", notice: b.RateLimitNotice, rate: true}
		return no
	}
	c.recent = append(c.recent, now)
	return nil
}

// countsAgainstRate reports whether a REQ costs anything: one that is only live
// does not.
func countsAgainstRate(req wire.Request) bool {
	return slices.ContainsFunc(req.Filters, func(f nostr.Filter) bool { return !f.LimitZero })
}

// refuseFilters looks at what a REQ asks for.
func (b *Behavior) refuseFilters(fs []nostr.Filter) *refusal {
	if b.MaxFilters > 0 && len(fs) > b.MaxFilters {
		return &refusal{text: "bad req: too many filters"}
	}
	for _, f := range fs {
		if b.RefuseKindless && len(f.Kinds)+len(f.Authors)+len(f.IDs) == 0 {
			return &refusal{text: "blocked: an author must be specified to get their kind:1 notes"}
		}
		if b.RefuseTagNamesOver > 0 && len(f.Tags) > b.RefuseTagNamesOver {
			return &refusal{text: "bad req: too many tags in filter"}
		}
		for _, values := range f.Tags {
			if n := b.RefuseTagValuesOver; n > 0 && len(values) > n {
				return &refusal{text: "too many tag values", notice: true, eose: true}
			}
			if n := b.RefuseValueOver; n > 0 && slices.ContainsFunc(values, func(v string) bool { return len(v) > n }) {
				return &refusal{text: "bad req: filter item too large"}
			}
		}
	}
	return nil
}

// subscribe opens a subscription and queues its stored events; if closed is given,
// behind that. relay.mu is held.
func (c *Conn) subscribe(req wire.Request, closed *frame) {
	r, b := c.relay, c.relay.behavior
	c.drop(req.Sub, 0) // the same id replaces (NIP-01)
	s := &subscription{id: req.Sub, filters: req.Filters, opened: time.Now()}
	asks := false
	for _, f := range req.Filters {
		s.matchers = append(s.matchers, newMatcher(f))
		asks = asks || !f.LimitZero
	}
	s.follows = !b.LateListen || !asks
	c.subs[req.Sub] = s
	records, complete := r.stored(req.Filters)
	a := &answer{sub: req.Sub, due: c.soon(), gap: b.Drip}
	if closed != nil {
		a.frames = append(a.frames, *closed)
	}
	a.frames = append(a.frames, r.unasked(s, b.UnaskedEvents)...)
	a.more = c.stream(s, a, records, complete)
	c.push(a)
}

// stream gives the stored events of a subscription, then its EOSE.
func (c *Conn) stream(s *subscription, a *answer, records []*record, complete bool) func() (frame, bool) {
	r := c.relay
	b := r.behavior
	var ready []frame
	made, eose := 0, false
	return func() (frame, bool) {
		for len(ready) == 0 && len(records) > 0 {
			ready = r.serve(s.id, records[0])
			records = records[1:]
		}
		if len(ready) > 0 {
			f := ready[0]
			ready = ready[1:]
			return f, true
		}
		if b.EndlessEvents > 0 && len(s.filters) > 0 {
			a.gap = b.EndlessEvents
			made++
			return r.madeUp(s, made-1), true
		}
		if eose || b.NeverEOSE {
			return frame{}, false
		}
		eose = true
		m := wire.Message{Type: wire.TypeEOSE, Sub: s.id}
		if b.Hints {
			m.Hint = wire.HintMore
			if complete {
				m.Hint = wire.HintFinish
			}
		}
		return frame{msg: m, sent: func() { s.ended, s.follows = true, true }}, true
	}
}

// stored answers filters one after the other, each event once, and says whether
// that was all there is. relay.mu is held.
func (r *Relay) stored(fs []nostr.Filter) (records []*record, complete bool) {
	b := &r.behavior
	complete = true
	seen := make(map[*record]struct{})
	for _, f := range fs {
		limit := f.Limit
		if f.LimitZero && !b.LimitZeroReturnsStored {
			continue
		}
		if limit <= 0 {
			limit = b.DefaultLimit
		}
		if b.IgnoreLimit {
			limit = 0
		}
		if b.Cap > 0 && (limit == 0 || limit > b.Cap) {
			limit = b.Cap
		}
		if b.IgnoreUntil {
			f.Until = nil
		}
		found := r.store.query(f)
		if limit > 0 && len(found) > limit {
			found, complete = found[:limit], false
		}
		if b.WrongOrder {
			slices.Reverse(found)
		}
		for _, rec := range found {
			if _, ok := seen[rec]; !ok {
				seen[rec] = struct{}{}
				records = append(records, rec)
			}
		}
	}
	return records, complete
}

// unsubscribe is a CLOSE of the client.
func (c *Conn) unsubscribe(id string) {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	c.drop(id, c.relay.behavior.LateEvents)
	if c.asking == id {
		c.asking = ""
	}
}

// drop ends a subscription and what is queued for it, but for the next few
// messages. relay.mu is held.
func (c *Conn) drop(id string, late int) {
	delete(c.subs, id)
	for i := 0; i < len(c.queue); {
		a := c.queue[i]
		if a.sub != id || id == "" {
			i++
			continue
		}
		if late == 0 {
			c.unqueue(i)
			continue
		}
		a.last = late
		late = 0
		i++
	}
}

// String names the mode, for test tables.
func (m NegMode) String() string {
	names := [...]string{"on", "notice", "neg-err", "neg-error", "closed", "silent", "endless", "garbage", "huge list"}
	if int(m) < len(names) {
		return names[m]
	}
	return fmt.Sprintf("neg(%d)", uint8(m))
}
