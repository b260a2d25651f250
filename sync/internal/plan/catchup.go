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
	missed    nostr.Timestamp // later events may be missed, and no part fetches them yet; 0: none
	missedAll bool            // missed concerns all items, not only the items opened next
	queue     []itemGroup
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
	r.catchUp.missed = earlier(r.catchUp.missed, cu.since(t))
}

func (cu *catchUp) since(t time.Time) nostr.Timestamp {
	return nostr.Timestamp(t.Add(-cu.cfg.Overlap).Unix())
}

// earlier returns the earlier time that is not 0.
func earlier(a, b nostr.Timestamp) nostr.Timestamp {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// unfetched returns the time since which events may be missing, or 0.
func (cu *catchUp) unfetched(r *relayState) (since nostr.Timestamp) {
	since = r.catchUp.missed
	for _, g := range r.catchUp.queue {
		since = earlier(since, g.since)
	}
	for _, b := range r.pending.all() {
		if b.of == cu {
			since = earlier(since, b.since)
		}
	}
	return since
}

func (cu *catchUp) skipped(r *relayState, since time.Time) {
	if r.catchUp.missed != 0 { // one catch-up follows when the missing items are followed
		cu.missedSince(r, since)
	} else {
		cu.queueItems(r, r.history.partlyFetched(), cu.since(since))
	}
}

// queueAll queues a catch-up of all partly fetched items.
func (cu *catchUp) queueAll(r *relayState) {
	since := cu.unfetched(r)
	r.catchUp = catchUpState{}
	r.pending.parked = slices.DeleteFunc(r.pending.parked, func(b *batch) bool { return b.of == cu })
	cu.queueItems(r, r.history.partlyFetched(), since)
}

// queueItems queues a catch-up of partly fetched items, unless a waiting part covers them. Running
// parts keep their progress, because otherwise they might never reach old events.
func (cu *catchUp) queueItems(r *relayState, items []Item, since nostr.Timestamp) {
	covered, waiting := make(map[Item]struct{}), 0
	for _, b := range r.pending.parked {
		if b.of == cu {
			waiting += len(b.items)
		} else if merge(nil, b.queries, b.failure.Cursors, b.kind == DailyHistory) == nil { // its history starts again
			for _, it := range b.items {
				if r.history.resume[it] == nil {
					covered[it] = struct{}{}
				}
			}
		}
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
		r.catchUp.missed = earlier(r.catchUp.missed, since)
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
	qs := cu.pending.queries(r, cu.repos.itemFilters(items), g.since, g.resume)
	if len(qs) == 0 {
		return
	}
	b := &batch{of: cu, kind: Recent, items: items, thread: thread, resume: g.resume, since: g.since}
	cu.pending.start(r, b, qs, now)
}

func (cu *catchUp) done(*relayState, *batch) {}

func (cu *catchUp) failed(r *relayState, b *batch, in Done) {
	r.catchUp.queue = append(r.catchUp.queue, itemGroup{
		items: b.items, resume: merge(b.resume, b.queries, in.Cursors, false), since: b.since,
	})
}
