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
	p.dialEnded(r)
	p.connected[r] = struct{}{}
	r.dial.connected, r.dial.failed, r.dial.refusals = true, false, 0
	r.dial.connectedAt = now
	r.limits, r.dial.address = in.Limits, in.Address
	r.live.connected()
	for it := range r.history.items {
		r.live.missing[it] = struct{}{}
	}
	p.reconnectKept(r, now)
	if r.dial.aliveAt.IsZero() || r.longAbsent(now, p.cfg.QuickReconnect) {
		if !r.dial.aliveAt.IsZero() {
			p.emit(Reset{Relay: r.url})
		}
		p.startFull(r, now)
	} else {
		p.missedSince(r, r.dial.aliveAt)
		p.queueCatchUp(r)
	}
	r.dial.aliveAt, r.dial.absentSince = now, time.Time{}
	p.nameHomeless()
}

// longAbsent reports whether a relay was away for so long that what was confirmed
// counts for nothing. For how long we did without it does not matter: that is known
// to the second, and what came meanwhile is asked for.
func (r *relay) longAbsent(now time.Time, most time.Duration) bool {
	if r.dial.absentSince.IsZero() {
		return false
	}
	// Where the machine was asleep only the wall clock says so, where that was set back
	// only the other one.
	away := max(now.Sub(r.dial.absentSince), now.Round(0).Sub(r.dial.absentSince.Round(0)))
	return away > most
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
			r.set(it, todo)
		}
	}
	p.passStarted(r, now)
}

// passStarted sets the time of the next pass. It is drawn anew each time, so that
// neither the relays of one server nor the servers of one relay fall into step.
func (p *Plan) passStarted(r *relay, now time.Time) {
	r.deletions.asked = 0
	r.passDescendants()
	r.pass.at, r.checkpoint.dirty = now, true
	r.audit.due = r.audit.reconciles
	p.sweepNext(r, p.cfg.SweepRoots)
	if len(p.authors) <= p.cfg.AuthorsPerPass {
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
func (p *Plan) longer(d time.Duration) time.Duration {
	return d + time.Duration(p.rng.Int64N(int64(d)/10+1))
}

func (p *Plan) onDialFailed(now time.Time, in DialFailed) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connecting {
		return
	}
	p.dialEnded(r)
	p.leaveUnproven(r)
	r.dial.failed = true // it waits where it is in nobody's way
	r.dial.retryAt = in.RetryAt
	p.setGood(r, in.Good)
	if in.NotDialed {
		r.dial.refusals++
		if at := now.Add(min(p.retryAfter(r.dial.refusals), p.longer(leastTenure))); at.After(r.dial.retryAt) {
			r.dial.retryAt = at
		}
		return
	}
	r.dial.refusals = 0
	if r.dial.absentSince.IsZero() {
		r.dial.absentSince = now
	}
}

// onLost ends a connection. What was in flight is todo again and keeps its place.
func (p *Plan) onLost(in Lost) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connected {
		return
	}
	r.dial.retryAt = in.RetryAt
	p.setGood(r, in.Good)
	p.disconnected(r, in.Cursors, in.AliveAt)
	r.dial.absentSince = in.AliveAt
}

// disconnected ends a connection that was last known to stand at aliveAt.
func (p *Plan) disconnected(r *relay, got map[BatchID][]Cursor, aliveAt time.Time) {
	p.markLost(r, aliveAt)
	delete(p.connected, r)
	p.leaveUnproven(r)
	r.dial.connected = false
	r.dial.aliveAt = aliveAt
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(r.batches.open))) {
		b := r.batches.open[id]
		switch {
		case b.kind == NamedIDs:
			r.namedLost(b)
		case b.sweep != nil:
			r.rotation.chunks = append(r.rotation.chunks, *b.sweep)
		case b.desc != nil:
			r.descendants.notAskedAbout(b, got[id], r.descendants.retryAt)
		default:
			p.giveUp(r, b, got[id])
			r.giveBackAuthors(b)
		}
	}
	clear(r.batches.open)
	r.batches.background = 0
	if r.live.poll != nil {
		p.missedSince(r, r.live.poll.oldest())
	}
	if !r.live.postponed.IsZero() { // what it was put off for was not followed since
		p.missedSince(r, r.live.postponed)
	}
	r.unparkAll()
	r.history.queue, r.catchUp.queue, r.catchUp.running = nil, nil, 0
	r.descLost(aliveAt)
	r.live.reset()
}

// giveUp makes the items of a batch todo again, with the progress it had made.
func (p *Plan) giveUp(r *relay, b *batch, got []Cursor) {
	if b.kind != History && b.kind != DailyHistory {
		return
	}
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
		r.set(it, todo)
	}
}

// queueCatchUp queues the search for what may have been missed: for everything
// that is confirmed, and for everything of which a part was fetched already. The
// rest will be fetched from the start anyway.
func (p *Plan) queueCatchUp(r *relay) {
	items := r.partlyFetched()
	r.catchUp.queue = p.groups(items, nil)
	r.catchUp.missed, r.catchUp.missedAll = false, false
	r.history.parked = slices.DeleteFunc(r.history.parked, func(k parking) bool { return k.catchUp })
	if len(items) == 0 && r.catchUp.running == 0 {
		r.catchUp.since = 0
	}
}

// queueCatchUpOf does the same for some items, beside what is looked for already.
func (p *Plan) queueCatchUpOf(r *relay, items []Item) {
	waiting := len(items)
	for _, g := range r.catchUp.queue {
		waiting += len(g.items)
	}
	if waiting > 2*len(r.history.items) {
		p.queueCatchUp(r)
		return
	}
	items = slices.DeleteFunc(items, func(it Item) bool {
		st := r.history.items[it]
		return st == 0 || st == todo && r.history.resume[it] == nil
	})
	r.catchUp.queue = append(r.catchUp.queue, p.groups(items, nil)...)
	p.caughtUp(r)
}

// partlyFetched returns what is confirmed and what was fetched in part.
func (r *relay) partlyFetched() (items []Item) {
	for it, st := range r.history.items {
		if st == confirmed || st == inFlight || r.history.resume[it] != nil {
			items = append(items, it)
		}
	}
	return items
}

// maxCatchUps is how many parts of a catch-up an item may be in on average, before all of
// them begin anew as one.
const maxCatchUps = 8

// queueSkipped queues the search for what was left out since a moment of what came live.
// What is looked for already goes on where it got to: where more is left out each time than
// is caught up with meanwhile, what lies behind would never be reached. What has not begun
// looks for this as well.
func (p *Plan) queueSkipped(r *relay, since nostr.Timestamp) {
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
	for i := range r.history.parked { // what got nowhere is asked for now, together with this
		if k := &r.history.parked[i]; k.catchUp && k.resume == nil {
			k.until = time.Time{}
		}
	}
	r.unpark(time.Time{})
	for _, g := range r.catchUp.queue {
		note(g)
	}
	for _, k := range r.history.parked {
		if k.catchUp {
			note(k.group())
		}
	}
	if waiting > maxCatchUps*len(r.history.items) {
		p.queueCatchUp(r)
		return
	}
	items := slices.DeleteFunc(r.partlyFetched(), func(it Item) bool {
		_, ok := covered[it]
		return ok
	})
	for _, g := range p.groups(items, nil) {
		g.since = since
		r.catchUp.queue = append(r.catchUp.queue, g)
	}
	p.caughtUp(r)
}

// dispatch starts batches: first what may have been missed, then what is asked for
// by name, then the difference, then what comes up again and again.
func (p *Plan) dispatch(r *relay, now time.Time) {
	if now.Before(r.coolUntil) {
		return
	}
	for len(r.batches.open) < p.cfg.MaxBatches {
		switch {
		case len(r.catchUp.queue) > 0:
			g := r.catchUp.queue[0]
			r.catchUp.queue = r.catchUp.queue[1:]
			p.startRecent(r, g, now)
		case r.pollDue(now):
			p.startPoll(r, now)
		case r.namedDue(now):
			p.startNamed(r, now)
		case len(r.history.todo) > 0:
			p.startHistory(r, now)
		case len(r.rotation.chunks) > 0 && !now.Before(r.rotation.retryAt):
			p.startSweep(r, now)
		case p.descendantsDue(r, now):
			p.startDescendants(r, now)
		case r.audit.due && !r.busy():
			p.startAudit(r, now)
		case !r.busy() && p.authorsDue(r) > 0 && !now.Before(r.deletions.retryAt):
			p.startDeletions(r, now)
		default:
			return
		}
	}
}

// startHistory starts the next batch of the difference.
func (p *Plan) startHistory(r *relay, now time.Time) {
	if len(r.history.queue) == 0 {
		items := make([]Item, 0, len(r.history.todo))
		for it := range r.history.todo {
			items = append(items, it)
		}
		r.history.queue = p.groups(items, r.history.resume)
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
	qs, roles := p.queries(r, p.itemFilters(items), 0, g.resume)
	for _, it := range items {
		r.set(it, inFlight)
	}
	if len(qs) == 0 {
		p.confirm(r, items, false)
		return
	}
	p.start(r, &batch{kind: kind, items: items, roles: roles}, qs, now)
}

func (p *Plan) startRecent(r *relay, g group, now time.Time) {
	items := slices.DeleteFunc(g.items, func(it Item) bool { return r.history.items[it] == 0 })
	if g.since == 0 {
		g.since = r.catchUp.since
	}
	qs, roles := p.queries(r, p.itemFilters(items), g.since, g.resume)
	if len(qs) == 0 {
		p.caughtUp(r)
		return
	}
	r.catchUp.running++
	p.start(r, &batch{kind: Recent, items: items, roles: roles, resume: g.resume, since: g.since}, qs, now)
}

// authorsDue is how many authors a relay is to be asked about now. At each pass it
// is asked about a part of them, each once; the rest have their turn at a later one.
func (p *Plan) authorsDue(r *relay) int {
	return min(len(p.authors)-r.deletions.asked, p.cfg.AuthorsPerPass-r.deletions.asked)
}

func (p *Plan) startDeletions(r *relay, now time.Time) {
	n := p.authorsDue(r)
	b := &batch{kind: Deletions, authors: n, authorsAt: r.deletions.at}
	authors := make([]graspsync.PubKey, n)
	for i := range authors {
		if r.deletions.at >= len(p.authors) {
			r.deletions.at = 0
		}
		authors[i] = p.authors[r.deletions.at]
		r.deletions.at++
	}
	r.deletions.asked += n
	r.deletions.retryAt = time.Time{}
	var qs []Query
	if qs, b.roles = p.queries(r, filters.Deletions(authors), 0, nil); len(qs) > 0 {
		p.start(r, b, qs, now)
	}
}

// giveBackAuthors has the authors of a batch asked about again.
func (r *relay) giveBackAuthors(b *batch) {
	if b.kind == Deletions {
		r.deletions.asked = max(0, r.deletions.asked-b.authors)
		r.deletions.at = b.authorsAt
	}
}

// graceAfterDeadline is for whoever fetches a batch to say at its deadline how far
// it got, before it is given up here.
const graceAfterDeadline = time.Minute

func (p *Plan) start(r *relay, b *batch, qs []Query, now time.Time) {
	p.lastBatch++
	deadline := now.Add(p.cfg.BatchTimeout)
	b.begun = now
	if b.background() {
		r.batches.background++
	}
	b.deadline = deadline.Add(graceAfterDeadline)
	r.batches.open[p.lastBatch] = b
	p.emit(Start{Relay: r.url, Epoch: r.dial.epoch, Batch: Batch{
		ID: p.lastBatch, Kind: b.kind, Items: len(b.items), Queries: qs, Deadline: deadline,
	}})
}
