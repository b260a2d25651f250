package plan

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"
)

// catchUp fetches events that may have been missed.
type catchUp struct {
	*core
	repos   *repoSyncIndex
	pending *pendingSyncIndex
}

type catchUpState struct {
	since     nostr.Timestamp // later events may be missed; 0: none
	missed    bool            // the running catch-up does not cover all missed events
	missedAll bool            // missed concerns all items, not only the items opened next
	queue     []itemGroup
	parked    []itemGroup
	running   int
}

// maxCatchUps is the average number of parts per item above which all parts are merged into one.
const maxCatchUps = 8

// missedSince records that events since shortly before t may be missing, for all items; missedSome
// for the items that are opened next.
func (cu *catchUp) missedSince(r *relayState, t time.Time) {
	cu.missedSome(r, t)
	r.catchUp.missedAll = true
}

func (cu *catchUp) missedSome(r *relayState, t time.Time) {
	cu.lookSince(r, t)
	r.catchUp.missed = true
}

// lookSince extends the catch-up to shortly before t, and returns that time.
func (cu *catchUp) lookSince(r *relayState, t time.Time) (since nostr.Timestamp) {
	since = nostr.Timestamp(t.Add(-cu.cfg.Overlap).Unix())
	if r.catchUp.since == 0 || since < r.catchUp.since {
		r.catchUp.since = since
	}
	return since
}

func (cu *catchUp) skipped(r *relayState, since time.Time) {
	if r.catchUp.missed { // one catch-up follows when the missing items are followed
		cu.missedSince(r, since)
	} else {
		cu.queueItems(r, r.history.partlyFetched(), cu.lookSince(r, since))
	}
}

// queueAll queues a catch-up of all partly fetched items.
func (cu *catchUp) queueAll(r *relayState) {
	items := r.history.partlyFetched()
	r.catchUp.missed, r.catchUp.missedAll = false, false
	r.catchUp.queue, r.catchUp.parked = nil, nil
	cu.queueItems(r, items, r.catchUp.since)
	if len(items) == 0 && r.catchUp.running == 0 {
		r.catchUp.since = 0
	}
}

// queueItems queues a catch-up of partly fetched items, unless a waiting part covers them. Running
// parts keep their progress, because otherwise they might never reach old events.
func (cu *catchUp) queueItems(r *relayState, items []Item, since nostr.Timestamp) {
	covered, waiting := make(map[Item]struct{}), 0
	for _, g := range r.catchUp.parked {
		waiting += len(g.items)
	}
	for _, g := range r.catchUp.queue {
		waiting += len(g.items)
		for _, it := range g.items {
			if g.resume == nil && g.since <= since {
				covered[it] = struct{}{}
			}
		}
	}
	if waiting > maxCatchUps*len(r.history.items) {
		cu.queueAll(r)
		return
	}
	items = slices.DeleteFunc(items, func(it Item) bool {
		st := r.history.items[it]
		return st == 0 || st == todo && r.history.resume[it] == nil || has(covered, it)
	})
	for _, g := range cu.repos.groups(items, nil) {
		g.since = since
		r.catchUp.queue = append(r.catchUp.queue, g)
	}
	cu.endIfCaughtUp(r)
}

func (cu *catchUp) queuePolled(r *relayState, items []Item, polled *pollGroup) {
	if polled.tier == mainTier { // the mark does not depend on layer 4
		cu.lookSince(r, polled.since)
	}
	cu.queueItems(r, items, nostr.Timestamp(polled.since.Add(-cu.cfg.Overlap).Unix()))
}

func (cu *catchUp) endIfCaughtUp(r *relayState) {
	if !r.catchUp.catching() && !r.catchUp.missed {
		r.catchUp.since = 0
	}
}

func (cu *catchUp) due(r *relayState, _ time.Time) bool { return cu.next(r) >= 0 }

// next returns the index of the next part, or -1. Layer 4 waits for the history of layers 1 to 3.
func (cu *catchUp) next(r *relayState) int {
	threads := len(r.history.tiers[mainTier].todo) == 0 && !r.pending.runs(func(b *batch) bool { return b.of == cu && b.thread })
	return slices.IndexFunc(r.catchUp.queue, func(g itemGroup) bool { return threads || cu.isMain(g) })
}

func (cu *catchUp) isMain(g itemGroup) bool {
	return len(g.items) == 0 || cu.repos.tier(g.items[0]) == mainTier
}

func (cu *catchUp) start(r *relayState, now time.Time) {
	i := cu.next(r)
	g, thread := r.catchUp.queue[i], !cu.isMain(r.catchUp.queue[i])
	r.catchUp.queue = slices.Delete(r.catchUp.queue, i, i+1)
	items := slices.DeleteFunc(g.items, func(it Item) bool { return r.history.items[it] == 0 })
	qs, roles := cu.pending.queries(r, cu.repos.itemFilters(items), g.since, g.resume)
	if len(qs) == 0 {
		cu.endIfCaughtUp(r)
		return
	}
	r.catchUp.running++
	b := &batch{of: cu, kind: Recent, items: items, thread: thread, roles: roles, resume: g.resume, since: g.since}
	cu.pending.start(r, b, qs, now)
}

func (cu *catchUp) done(r *relayState, _ *batch, _ bool) {
	r.catchUp.running--
	cu.endIfCaughtUp(r)
}

func (cu *catchUp) failed(r *relayState, b *batch, in Done, until time.Time) {
	r.catchUp.running--
	r.catchUp.parked = append(r.catchUp.parked, itemGroup{
		items: b.items, resume: merge(b.resume, b.roles, in.Cursors, false), since: b.since, until: until,
	})
}

func (c *catchUpState) catching() bool { return c.running > 0 || len(c.queue)+len(c.parked) > 0 }

func (c *catchUpState) unpark(now time.Time) { c.queue = append(c.queue, ended(&c.parked, now)...) }

func (c *catchUpState) unparkAll() {
	for i := range c.parked {
		c.parked[i].until = time.Time{}
	}
	c.unpark(time.Time{})
}

func (c *catchUpState) wakes(consider func(time.Time)) {
	for _, k := range c.parked {
		consider(k.until)
	}
}

func (c *catchUpState) jumped(back time.Duration) bool {
	if c.since == 0 || back == 0 {
		return false
	}
	c.since -= nostr.Timestamp(back / time.Second)
	c.missedAll = true
	return true
}
