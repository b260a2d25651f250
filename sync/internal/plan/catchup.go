package plan

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"
)

type catchUpState struct {
	missed    nostr.Timestamp // later events may be missed, and no part fetches them yet; 0: none
	missedAll bool            // missed concerns all items, not only the items opened next
	queue     []catchUpPart
}

type catchUpPart struct {
	items []Item
	since nostr.Timestamp
}

// maxCatchUps is the average number of parts per item above which all parts are merged into one.
const maxCatchUps = 8

func (in Skipped) apply(p *Plan) {
	r := p.current(in.Relay, in.Epoch)
	switch {
	case r == nil || !r.dial.connected:
	case r.catchUp.missed != 0: // one catch-up follows when the missing items are followed
		p.missedSince(r, in.Since)
	default:
		p.catchUp(r, r.history.partlyFetched(), p.since(in.Since))
	}
}

// missedSince records that events of all items since shortly before t may be missing, missedSome of
// the items that are opened next.
func (p *Plan) missedSince(r *relayState, t time.Time) {
	p.missedSome(r, t)
	r.catchUp.missedAll = true
}

func (p *Plan) missedSome(r *relayState, t time.Time) {
	r.catchUp.missed = earlier(r.catchUp.missed, p.since(t))
}

func (p *Plan) since(t time.Time) nostr.Timestamp {
	return nostr.Timestamp(t.Add(-p.cfg.Overlap).Unix())
}

// earlier returns the earlier time that is not 0.
func earlier(a, b nostr.Timestamp) nostr.Timestamp {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// missingSince returns the time since which events may be missing, or 0.
func (r *relayState) missingSince() (since nostr.Timestamp) {
	since = r.catchUp.missed
	for _, part := range r.catchUp.queue {
		since = earlier(since, part.since)
	}
	for _, b := range r.pending.all() {
		if b.isCatchUp() {
			since = earlier(since, b.since)
		}
	}
	return since
}

func (b *batch) isCatchUp() bool { return b.Kind == Recent && b.poll == nil }

func (p *Plan) catchUpAll(r *relayState) {
	since := r.missingSince()
	r.catchUp = catchUpState{}
	r.pending.parked = slices.DeleteFunc(r.pending.parked, (*batch).isCatchUp)
	p.catchUp(r, r.history.partlyFetched(), since)
}

// catchUp queues a catch-up of partly fetched items, unless a waiting part or batch covers them.
// Running parts keep their progress, because otherwise they might never reach old events.
func (p *Plan) catchUp(r *relayState, items []Item, since nostr.Timestamp) {
	covered, waiting := make(map[Item]struct{}), 0
	for _, b := range r.pending.parked {
		if b.isCatchUp() {
			waiting += len(b.items)
		} else if b.isHistory() && !b.advanced {
			for _, it := range b.items {
				covered[it] = struct{}{}
			}
		}
	}
	for _, part := range r.catchUp.queue {
		waiting += len(part.items)
		for _, it := range part.items {
			if part.since <= since {
				covered[it] = struct{}{}
			}
		}
	}
	if waiting > maxCatchUps*len(r.history.items) {
		r.catchUp.missed = earlier(r.catchUp.missed, since)
		p.catchUpAll(r)
		return
	}
	items = slices.DeleteFunc(items, func(it Item) bool {
		st := r.history.items[it]
		return st == 0 || st == todo || has(covered, it)
	})
	for _, g := range p.repos.groups(items) {
		r.catchUp.queue = append(r.catchUp.queue, catchUpPart{g, since})
	}
}

func (p *Plan) nextCatchUp(r *relayState) int {
	threads := r.threadsMayRun()
	return slices.IndexFunc(r.catchUp.queue, func(part catchUpPart) bool { return threads || !p.isThread(part.items) })
}

func (p *Plan) isThread(items []Item) bool {
	return len(items) > 0 && p.repos.tier(items[0]) == threadTier
}

func (p *Plan) startCatchUp(r *relayState) bool {
	i := p.nextCatchUp(r)
	if i < 0 {
		return false
	}
	part := r.catchUp.queue[i]
	r.catchUp.queue = slices.Delete(r.catchUp.queue, i, i+1)
	b := &batch{Batch: Batch{Kind: Recent}, thread: p.isThread(part.items), since: part.since}
	b.items = slices.DeleteFunc(part.items, func(it Item) bool { return r.history.items[it] == 0 })
	b.Queries = p.queries(b.items, b.since)
	p.begin(r, b)
	return true
}
