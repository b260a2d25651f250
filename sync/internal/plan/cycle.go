package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// onConnected starts a connection: as if for the first time when the last one is
// long gone, else just with what may have been missed.
func (p *Plan) onConnected(now time.Time, in Connected) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connecting {
		return
	}
	p.dialer.made(r, in.Address, now)
	r.limits = in.Limits
	r.live.connected()
	for it := range r.history.items {
		r.live.missing[it] = struct{}{}
	}
	if p.checkpoint.resume(r, now) {
		r.pass.dueAt = p.nextPass(r.pass.at)
	}
	if r.dial.aliveAt.IsZero() || r.dial.longAbsent(now, p.cfg.QuickReconnect) {
		if !r.dial.aliveAt.IsZero() {
			p.emit(Reset{Relay: r.url})
		}
		p.startFull(r, now)
	} else {
		p.catchUp.missedSince(r, r.dial.aliveAt)
		p.catchUp.queueAll(r)
	}
	r.dial.aliveAt, r.dial.absentSince = now, time.Time{}
	p.byID.assign()
}

func (p *Plan) startFull(r *relay, now time.Time) {
	r.forget()
	p.passStarted(r, now)
}

// startDaily has everything fetched again that is confirmed, on the standing
// connection: live subscriptions and what is in flight stay.
func (p *Plan) startDaily(r *relay, now time.Time) {
	p.emit(Reset{Relay: r.url, Daily: true})
	r.batches.gaps, r.batches.failures, r.history.queue = 0, 0, nil
	r.unparkAll()
	mark := &cursors{daily: true}
	for it, st := range r.history.items {
		if st == confirmed {
			r.history.resume[it] = mark
			r.history.set(it, todo)
		}
	}
	p.passStarted(r, now)
}

// passStarted sets the time of the next pass. It is drawn anew each time, so that
// neither the relays of one server nor the servers of one relay fall into step.
func (p *Plan) passStarted(r *relay, now time.Time) {
	r.deletions.asked = 0
	r.descendants.passStarted()
	r.pass.at, r.checkpoint.dirty = now, true
	r.audit.due = r.audit.reconciles
	p.rotation.queue(r, p.cfg.SweepRoots)
	if len(p.deletions.authors) <= p.cfg.AuthorsPerPass {
		r.deletions.at = 0 // all have their turn, those who come later at the end
	}
	r.pass.dueAt = p.nextPass(now)
}

// nextPass returns when a pass is due if the last one began at passAt.
func (p *Plan) nextPass(passAt time.Time) time.Time {
	spread := p.cfg.DailyMax - p.cfg.DailyMin
	return passAt.Add(p.cfg.DailyMin + time.Duration(p.rng.Int64N(int64(spread)+1)))
}

// longer lengthens what is periodic, or waited for, by up to a tenth at random, so
// that the servers that lost the same relay do not come back in step.
func (c *common) longer(d time.Duration) time.Duration {
	return d + time.Duration(c.rng.Int64N(int64(d)/10+1))
}

// onLost ends a connection. What was in flight is todo again and keeps its place.
func (p *Plan) onLost(in Lost) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connected {
		return
	}
	r.dial.retryAt = in.RetryAt
	p.dialer.setGood(r, in.Good)
	p.dialer.lost(r)
	p.disconnected(r, in.Cursors, in.AliveAt)
	r.dial.absentSince = in.AliveAt
}

// onHungUp ends a connection that we gave up for another one.
func (p *Plan) onHungUp(r *relay) {
	alive := r.dial.connectedAt // what it has sent since all was settled may not have been read
	if r.checkpoint.mark.After(alive) {
		alive = r.checkpoint.mark
	}
	if !r.checkpoint.unsettled && p.checkpoint.settledAt.After(alive) {
		alive = p.checkpoint.settledAt
	}
	p.disconnected(r, nil, alive)
}

// disconnected ends a connection that was last known to stand at aliveAt.
func (p *Plan) disconnected(r *relay, got map[BatchID][]Cursor, aliveAt time.Time) {
	p.checkpoint.markLost(r, aliveAt)
	r.dial.aliveAt = aliveAt
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(r.batches.open))) {
		b := r.batches.open[id]
		b.of.lost(r, b, got[id])
	}
	clear(r.batches.open)
	r.batches.background = 0
	if r.live.poll != nil {
		p.catchUp.missedSince(r, r.live.poll.oldest())
	}
	if !r.live.postponed.IsZero() { // what it was put off for was not followed since
		p.catchUp.missedSince(r, r.live.postponed)
	}
	r.unparkAll()
	r.history.queue, r.catchUp.queue, r.catchUp.running = nil, nil, 0
	r.descendants.lost(aliveAt)
	r.live.reset()
}

func (h *history) done(r *relay, b *batch, gaps bool) { h.confirm(r, b.items, gaps) }

func (h *history) failed(r *relay, b *batch, in Done, until time.Time) {
	h.lost(r, b, in.Cursors)
	items := slices.DeleteFunc(b.items, func(it Item) bool { return r.history.items[it] != todo })
	r.history.park(items, until)
}

// lost makes the items of a batch todo again, with the progress it had made.
func (h *history) lost(r *relay, b *batch, got []Cursor) {
	byOld := make(map[*cursors]*cursors)
	for _, it := range b.items {
		old := r.history.resume[it]
		merged, ok := byOld[old]
		if !ok {
			merged = merge(old, b.roles, got, b.kind == DailyHistory)
			byOld[old] = merged
		}
		if merged == nil {
			delete(r.history.resume, it)
		} else {
			r.history.resume[it] = merged
		}
		r.history.set(it, todo)
	}
}

// queueCatchUp queues the search for what may have been missed: for everything
// that is confirmed, and for everything of which a part was fetched already. The
// rest will be fetched from the start anyway.
func (cu *catchUp) queueAll(r *relay) {
	items := r.history.partlyFetched()
	r.catchUp.queue = cu.want.groups(items, nil)
	r.catchUp.missed, r.catchUp.missedAll = false, false
	r.catchUp.parked = nil
	if len(items) == 0 && r.catchUp.running == 0 {
		r.catchUp.since = 0
	}
}

// queueCatchUpOf does the same for some items, beside what is looked for already.
func (cu *catchUp) queueItems(r *relay, items []Item) {
	waiting := len(items)
	for _, g := range r.catchUp.queue {
		waiting += len(g.items)
	}
	if waiting > 2*len(r.history.items) {
		cu.queueAll(r)
		return
	}
	items = slices.DeleteFunc(items, func(it Item) bool {
		st := r.history.items[it]
		return st == 0 || st == todo && r.history.resume[it] == nil
	})
	r.catchUp.queue = append(r.catchUp.queue, cu.want.groups(items, nil)...)
	cu.caughtUp(r)
}

// maxCatchUps is how many parts of a catch-up an item may be in on average, before all of
// them begin anew as one.
const maxCatchUps = 8

// queueSkipped queues the search for what was left out since a moment of what came live.
// What is looked for already goes on where it got to: where more is left out each time than
// is caught up with meanwhile, what lies behind would never be reached. What has not begun
// looks for this as well.
func (cu *catchUp) queueSkipped(r *relay, since nostr.Timestamp) {
	covered, waiting := make(map[Item]struct{}), 0
	note := func(g group) {
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
		note(k.group)
	}
	if waiting > maxCatchUps*len(r.history.items) {
		cu.queueAll(r)
		return
	}
	items := slices.DeleteFunc(r.history.partlyFetched(), func(it Item) bool {
		_, ok := covered[it]
		return ok
	})
	for _, g := range cu.want.groups(items, nil) {
		g.since = since
		r.catchUp.queue = append(r.catchUp.queue, g)
	}
	cu.caughtUp(r)
}

// dispatch starts batches: first what may have been missed, then what is asked for
// by name, then the difference, then what comes up again and again.
func (p *Plan) dispatch(r *relay, now time.Time) {
	if now.Before(r.coolUntil) {
		return
	}
	for len(r.batches.open) < p.cfg.MaxBatches {
		next := slices.IndexFunc(p.askers, func(a asker) bool { return a.due(r, now) })
		if next < 0 {
			return
		}
		p.askers[next].start(r, now)
	}
}

// history fetches the difference: what is wanted of a relay and was not fetched yet.
type history struct {
	*common
	want    *want
	batches *batches
}

// catchUp fetches what may have been missed of what was fetched before.
type catchUp struct {
	*common
	want    *want
	batches *batches
}

// deletions asks for the deletions of authors.
type deletions struct {
	*common
	batches *batches

	authors   []graspsync.PubKey
	authorSet map[graspsync.PubKey]struct{}
	leftOut   int // authors for whom there was no room
}

func newDeletions(c *common, bs *batches) *deletions {
	return &deletions{common: c, batches: bs, authorSet: make(map[graspsync.PubKey]struct{})}
}

func (h *history) due(r *relay, _ time.Time) bool { return len(r.history.todo) > 0 }

// start starts the next batch of the difference.
func (h *history) start(r *relay, now time.Time) {
	if len(r.history.queue) == 0 {
		items := make([]Item, 0, len(r.history.todo))
		for it := range r.history.todo {
			items = append(items, it)
		}
		r.history.queue = h.want.groups(items, r.history.resume)
	}
	g := r.history.queue[0]
	r.history.queue = r.history.queue[1:]
	items := slices.DeleteFunc(g.items, func(it Item) bool {
		_, ok := r.history.todo[it]
		return !ok || r.history.resume[it] != g.resume
	})
	if len(items) == 0 {
		return
	}
	kind := History
	if g.resume != nil && g.resume.daily {
		kind = DailyHistory
	}
	qs, roles := h.batches.queries(r, h.want.itemFilters(items), 0, g.resume)
	for _, it := range items {
		r.history.set(it, inFlight)
	}
	if len(qs) == 0 {
		h.confirm(r, items, false)
		return
	}
	h.batches.start(r, &batch{of: h, kind: kind, items: items, roles: roles}, qs, now)
}

func (cu *catchUp) due(r *relay, _ time.Time) bool { return len(r.catchUp.queue) > 0 }

// start starts the next part of a catch-up.
func (cu *catchUp) start(r *relay, now time.Time) {
	g := r.catchUp.queue[0]
	r.catchUp.queue = r.catchUp.queue[1:]
	items := slices.DeleteFunc(g.items, func(it Item) bool { return r.history.items[it] == 0 })
	if g.since == 0 {
		g.since = r.catchUp.since
	}
	qs, roles := cu.batches.queries(r, cu.want.itemFilters(items), g.since, g.resume)
	if len(qs) == 0 {
		cu.caughtUp(r)
		return
	}
	r.catchUp.running++
	b := &batch{of: cu, kind: Recent, items: items, roles: roles, resume: g.resume, since: g.since}
	cu.batches.start(r, b, qs, now)
}

func (cu *catchUp) done(r *relay, _ *batch, _ bool) {
	r.catchUp.running--
	cu.caughtUp(r)
}

func (cu *catchUp) failed(r *relay, b *batch, in Done, until time.Time) {
	r.catchUp.running--
	r.catchUp.park(group{items: b.items, resume: merge(b.resume, b.roles, in.Cursors, false), since: b.since}, until)
}

// lost does nothing: the next connection has a catch-up of its own.
func (cu *catchUp) lost(*relay, *batch, []Cursor) {}

func (dl *deletions) due(r *relay, now time.Time) bool {
	return !r.busy() && dl.left(r) > 0 && !now.Before(r.deletions.retryAt)
}

// left is how many authors a relay is to be asked about now. At each pass it
// is asked about a part of them, each once; the rest have their turn at a later one.
func (dl *deletions) left(r *relay) int {
	return min(len(dl.authors)-r.deletions.asked, dl.cfg.AuthorsPerPass-r.deletions.asked)
}

func (dl *deletions) start(r *relay, now time.Time) {
	n := dl.left(r)
	b := &batch{of: dl, kind: Deletions, authors: n, authorsAt: r.deletions.at}
	authors := make([]graspsync.PubKey, n)
	for i := range authors {
		if r.deletions.at >= len(dl.authors) {
			r.deletions.at = 0
		}
		authors[i] = dl.authors[r.deletions.at]
		r.deletions.at++
	}
	r.deletions.asked += n
	r.deletions.retryAt = time.Time{}
	var qs []Query
	if qs, b.roles = dl.batches.queries(r, filters.Deletions(authors), 0, nil); len(qs) > 0 {
		dl.batches.start(r, b, qs, now)
	}
}

func (dl *deletions) done(*relay, *batch, bool) {}

func (dl *deletions) failed(r *relay, b *batch, _ Done, until time.Time) {
	dl.lost(r, b, nil)
	r.deletions.retryAt = until
}

// lost has the authors of a batch asked about again.
func (dl *deletions) lost(r *relay, b *batch, _ []Cursor) {
	r.deletions.asked = max(0, r.deletions.asked-b.authors)
	r.deletions.at = b.authorsAt
}

// graceAfterDeadline is for whoever fetches a batch to say at its deadline how far
// it got, before it is given up here.
const graceAfterDeadline = time.Minute

func (bs *batches) start(r *relay, b *batch, qs []Query, now time.Time) {
	bs.last++
	deadline := now.Add(bs.cfg.BatchTimeout)
	b.begun = now
	if b.background() {
		r.batches.background++
	}
	b.deadline = deadline.Add(graceAfterDeadline)
	r.batches.open[bs.last] = b
	bs.emit(Start{Relay: r.url, Epoch: r.dial.epoch, Batch: Batch{
		ID: bs.last, Kind: b.kind, Items: len(b.items), Queries: qs, Deadline: deadline,
	}})
}
