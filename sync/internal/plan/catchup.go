package plan

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"
)

// catchUp fetches what may have been missed of what was fetched before.
type catchUp struct {
	*core
	repos   *repoSyncIndex
	pending *pendingSyncIndex
}

// catchUpState is what may have been missed of items that were fetched before.
type catchUpState struct {
	since     nostr.Timestamp // what is newer may have been missed; 0: nothing
	missed    bool            // more was missed than the catch-up under way looks for
	missedAll bool            // and not just of what is opened next
	queue     []itemGroup     // parts of the catch-up that have yet to start
	parked    []parkedCatchUp // parts of it that failed
	running   int
}

// parkedGroup holds a part of a catch-up back that failed.
type parkedCatchUp struct {
	itemGroup
	until time.Time
}

// maxCatchUps is how many parts of a catch-up an item may be in on average, before all of
// them begin anew as one.
const maxCatchUps = 8

// missedSince notes that events of anything may have been missed since shortly before
// t.
func (cu *catchUp) missedSince(r *relayState, t time.Time) {
	cu.missedSome(r, t)
	r.catchUp.missedAll = true
}

// missedSome notes that events may have been missed since shortly before t of what is
// opened next.
func (cu *catchUp) missedSome(r *relayState, t time.Time) {
	cu.lookSince(r, t)
	r.catchUp.missed = true
}

// lookSince makes the catch-up look back to shortly before t at least, and returns that time.
func (cu *catchUp) lookSince(r *relayState, t time.Time) (since nostr.Timestamp) {
	since = nostr.Timestamp(t.Add(-cu.cfg.Overlap).Unix())
	if r.catchUp.since == 0 || since < r.catchUp.since {
		r.catchUp.since = since
	}
	return since
}

// skipped catches up with what was left out since a moment of what came live.
func (cu *catchUp) skipped(r *relayState, since time.Time) {
	if r.catchUp.missed { // then all is caught up with once what is missing is followed
		cu.missedSince(r, since)
	} else {
		cu.queueSkipped(r, cu.lookSince(r, since))
	}
}

// queueAll queues the search for what may have been missed: for everything
// that is confirmed, and for everything of which a part was fetched already. The
// rest will be fetched from the start anyway.
func (cu *catchUp) queueAll(r *relayState) {
	items := r.history.partlyFetched()
	r.catchUp.queue = cu.repos.groups(items, nil)
	r.catchUp.missed, r.catchUp.missedAll = false, false
	r.catchUp.parked = nil
	if len(items) == 0 && r.catchUp.running == 0 {
		r.catchUp.since = 0
	}
}

// queueItems does the same for some items, beside what is looked for already.
func (cu *catchUp) queueItems(r *relayState, items []Item) {
	waiting := len(items)
	for _, g := range r.catchUp.queue {
		waiting += len(g.items)
	}
	if waiting > 2*r.history.items.Len() {
		cu.queueAll(r)
		return
	}
	items = slices.DeleteFunc(items, func(it Item) bool {
		st := r.history.items.Get(it)
		return st == 0 || st == todo && r.history.resume[it] == nil
	})
	r.catchUp.queue = append(r.catchUp.queue, cu.repos.groups(items, nil)...)
	cu.endIfCaughtUp(r)
}

// queueSkipped queues the search for what was left out since a moment of what came live.
// What is looked for already goes on where it got to: where more is left out each time than
// is caught up with meanwhile, what lies behind would never be reached. What has not begun
// looks for this as well.
func (cu *catchUp) queueSkipped(r *relayState, since nostr.Timestamp) {
	covered, waiting := make(map[Item]struct{}), 0
	note := func(g itemGroup) {
		waiting += len(g.items)
		if g.resume != nil || g.since > since {
			return
		}
		for _, it := range g.items {
			covered[it] = struct{}{}
		}
	}
	for i := range r.catchUp.parked { // what got nowhere is asked for now, together with this
		if k := &r.catchUp.parked[i]; k.resume == nil {
			k.until = time.Time{}
		}
	}
	r.catchUp.unpark(time.Time{})
	for _, g := range r.catchUp.queue {
		note(g)
	}
	for _, k := range r.catchUp.parked {
		note(k.itemGroup)
	}
	if waiting > maxCatchUps*r.history.items.Len() {
		cu.queueAll(r)
		return
	}
	items := slices.DeleteFunc(r.history.partlyFetched(), func(it Item) bool {
		_, ok := covered[it]
		return ok
	})
	for _, g := range cu.repos.groups(items, nil) {
		g.since = since
		r.catchUp.queue = append(r.catchUp.queue, g)
	}
	cu.endIfCaughtUp(r)
}

// endIfCaughtUp forgets what may have been missed once all parts were fetched.
func (cu *catchUp) endIfCaughtUp(r *relayState) {
	if !r.catchUp.catching() && !r.catchUp.missed {
		r.catchUp.since = 0
	}
}

func (cu *catchUp) due(r *relayState, _ time.Time) bool { return len(r.catchUp.queue) > 0 }

// start starts the next part of a catch-up.
func (cu *catchUp) start(r *relayState, now time.Time) {
	g := r.catchUp.queue[0]
	if r.catchUp.queue = r.catchUp.queue[1:]; len(r.catchUp.queue) == 0 {
		r.catchUp.queue = nil
	}
	items := slices.DeleteFunc(g.items, func(it Item) bool { return r.history.items.Get(it) == 0 })
	if g.since == 0 {
		g.since = r.catchUp.since
	}
	qs, roles := cu.pending.queries(r, cu.repos.itemFilters(items), g.since, g.resume)
	if len(qs) == 0 {
		cu.endIfCaughtUp(r)
		return
	}
	r.catchUp.running++
	b := &batch{of: cu, kind: Recent, items: items, roles: roles, resume: g.resume, since: g.since}
	cu.pending.start(r, b, qs, now)
}

func (cu *catchUp) done(r *relayState, _ *batch, _ bool) {
	r.catchUp.running--
	cu.endIfCaughtUp(r)
}

func (cu *catchUp) failed(r *relayState, b *batch, in Done, until time.Time) {
	r.catchUp.running--
	r.catchUp.park(itemGroup{items: b.items, resume: merge(b.resume, b.roles, in.Cursors, false), since: b.since}, until)
}

// lost does nothing: the next connection has a catch-up of its own.
func (cu *catchUp) lost(*relayState, *batch, []Cursor) {}

// catching reports whether a catch-up is not finished.
func (c *catchUpState) catching() bool { return c.running > 0 || len(c.queue)+len(c.parked) > 0 }

// park holds a part of the catch-up back until then.
func (c *catchUpState) park(g itemGroup, until time.Time) {
	c.parked = append(c.parked, parkedCatchUp{g, until})
}

// unpark queues the parts that were parked until now.
func (c *catchUpState) unpark(now time.Time) {
	kept := c.parked[:0]
	for _, k := range c.parked {
		if now.Before(k.until) {
			kept = append(kept, k)
		} else {
			c.queue = append(c.queue, k.itemGroup)
		}
	}
	c.parked = kept
}

// unparkAll queues all parts that are parked.
func (c *catchUpState) unparkAll() {
	for i := range c.parked {
		c.parked[i].until = time.Time{}
	}
	c.unpark(time.Time{})
}

// wakes names what becomes due on a connection.
func (c *catchUpState) wakes(consider func(time.Time)) {
	for _, k := range c.parked {
		consider(k.until)
	}
}

// jumped sets back since when it looks where a clock was set back, and reports whether it does.
func (c *catchUpState) jumped(back time.Duration) bool {
	if c.since == 0 || back == 0 {
		return false
	}
	c.since -= nostr.Timestamp(back / time.Second)
	c.missedAll = true
	return true
}
