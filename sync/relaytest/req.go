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
	text      string
	notice    bool // NOTICE instead of CLOSED or NEG-ERR
	eose      bool // and EOSE after it
	rate      bool // it is about the rate
	challenge bool // AUTH before it
	max       int  // the most records, in a NEG-ERR
	after     int  // so many filters were taken before
}

// request answers a REQ of so many bytes.
func (c *Conn) request(req wire.Request, size int) {
	r := c.relay
	scripted := r.scriptedRefusal(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.closed {
		return
	}
	no := r.program().request(c, req, size)
	if no == nil {
		no = scripted
	}
	if no == nil {
		c.subscribe(req, size, nil)
		return
	}
	b := &r.behavior
	if b.RefuseByNotice && !no.notice {
		no.notice, no.text = true, "ERROR: "+no.text
	}
	if no.notice {
		c.turnDown(wire.TypeClosed, req.Sub, no)
		return
	}
	if b.EventsAfterClosed {
		c.subscribe(req, size, c.refused(wire.TypeClosed, req.Sub, no))
		return
	}
	c.drop(req.Sub, 0)
	c.turnDown(wire.TypeClosed, req.Sub, no)
	if no.after > 0 {
		c.follow(req.Sub, req.Filters[:no.after], size)
	}
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

// follow opens a subscription. relay.mu is held.
func (c *Conn) follow(id string, fs []nostr.Filter, size int) *subscription {
	s := &subscription{id: id, filters: fs, opened: time.Now(), size: size}
	asks := false
	for _, f := range fs {
		s.matchers = append(s.matchers, newMatcher(f))
		asks = asks || !f.LimitZero
		if f.IDs == nil {
			s.asksIDs = -1
		}
		if s.asksIDs >= 0 {
			s.asksIDs += len(f.IDs)
		}
	}
	s.follows = !c.relay.behavior.LateListen || !asks
	c.subs[id] = s
	return s
}

// subscribe opens a subscription and queues its stored events, if first is given behind
// that. relay.mu is held.
func (c *Conn) subscribe(req wire.Request, size int, first []frame) {
	r, b := c.relay, c.relay.behavior
	c.drop(req.Sub, 0) // the same id replaces (NIP-01)
	s := c.follow(req.Sub, req.Filters, size)
	records, complete := r.stored(req.Filters)
	s.passes = b.Software == SoftwareRustNostr && s.asksIDs == len(records)
	a := &answer{sub: req.Sub, due: c.soon(), gap: b.Drip}
	a.frames = append(first, r.unasked(s, b.UnaskedEvents)...)
	a.more = c.stream(s, a, records, complete)
	c.push(a)
}

// stream gives the stored events of a subscription, then its EOSE.
func (c *Conn) stream(s *subscription, a *answer, records []*record, complete bool) func() (frame, bool) {
	r := c.relay
	b := r.behavior
	var ready []frame
	made, eose := 0, false
	found := len(records)
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
		ready = r.program().ended(c, s, found)
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
	if r.program().manners().merges {
		slices.SortFunc(records, orderRecords)
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
