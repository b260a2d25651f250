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
	if r == nil || !r.connecting {
		return
	}
	p.dialEnded(r)
	p.connected[r] = struct{}{}
	r.connected, r.failed, r.refusals = true, false, 0
	r.connectedAt = now
	r.limits, r.address = in.Limits, in.Address
	r.live = liveState{}
	r.live.reset()
	for it := range r.items {
		r.live.missing[it] = struct{}{}
	}
	p.reconnectKept(r, now)
	if r.aliveAt.IsZero() || r.longAbsent(now, p.cfg.QuickReconnect) {
		if !r.aliveAt.IsZero() {
			p.emit(Reset{Relay: r.url})
		}
		p.startFull(r, now)
	} else {
		p.missedSince(r, r.aliveAt)
		p.queueCatchUp(r)
	}
	r.aliveAt, r.absentSince = now, time.Time{}
	p.nameHomeless()
}

// longAbsent reports whether a relay was away for so long that what was confirmed
// counts for nothing. For how long we did without it does not matter: that is known
// to the second, and what came meanwhile is asked for.
func (r *relay) longAbsent(now time.Time, most time.Duration) bool {
	if r.absentSince.IsZero() {
		return false
	}
	// Where the machine was asleep only the wall clock says so, where that was set back
	// only the other one.
	away := max(now.Sub(r.absentSince), now.Round(0).Sub(r.absentSince.Round(0)))
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
	r.gaps, r.failures, r.queue = 0, 0, nil
	r.unparkAll()
	mark := &cursors{daily: true}
	for it, st := range r.items {
		if st == confirmed {
			r.resume[it] = mark
			r.set(it, todo)
		}
	}
	p.passStarted(r, now)
}

// passStarted sets the time of the next pass. It is drawn anew each time, so that
// neither the relays of one server nor the servers of one relay fall into step.
func (p *Plan) passStarted(r *relay, now time.Time) {
	r.authorsAsked = 0
	r.passDescendants()
	r.passAt, r.keptDirty = now, true
	r.auditDue = r.reconciles
	p.sweepNext(r, p.cfg.SweepRoots)
	if len(p.authors) <= p.cfg.AuthorsPerPass {
		r.authorsAt = 0 // all have their turn, those who come later at the end
	}
	r.dailyAt = p.nextPass(now)
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
	if r == nil || !r.connecting {
		return
	}
	p.dialEnded(r)
	p.leaveUnproven(r)
	r.failed = true // it waits where it is in nobody's way
	r.retryAt = in.RetryAt
	p.setGood(r, in.Good)
	if in.NotDialed {
		r.refusals++
		if at := now.Add(min(p.retryAfter(r.refusals), p.longer(leastTenure))); at.After(r.retryAt) {
			r.retryAt = at
		}
		return
	}
	r.refusals = 0
	if r.absentSince.IsZero() {
		r.absentSince = now
	}
}

// onLost ends a connection. What was in flight is todo again and keeps its place.
func (p *Plan) onLost(in Lost) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.connected {
		return
	}
	r.retryAt = in.RetryAt
	p.setGood(r, in.Good)
	p.disconnected(r, in.Cursors, in.AliveAt)
	r.absentSince = in.AliveAt
}

// disconnected ends a connection that was last known to stand at aliveAt.
func (p *Plan) disconnected(r *relay, got map[BatchID][]Cursor, aliveAt time.Time) {
	p.markLost(r, aliveAt)
	delete(p.connected, r)
	p.leaveUnproven(r)
	r.connected = false
	r.aliveAt = aliveAt
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(r.batches))) {
		b := r.batches[id]
		switch {
		case b.kind == NamedIDs:
			r.namedLost(b)
		case b.sweep != nil:
			r.sweep.chunks = append(r.sweep.chunks, *b.sweep)
		case b.desc != nil:
			r.desc.notAskedAbout(b, got[id], r.desc.retryAt)
		default:
			p.giveUp(r, b, got[id])
			r.giveBackAuthors(b)
		}
	}
	clear(r.batches)
	r.behind = 0
	if r.live.poll != nil {
		p.missedSince(r, r.live.poll.oldest())
	}
	if !r.live.postponed.IsZero() { // what it was put off for was not followed since
		p.missedSince(r, r.live.postponed)
	}
	r.unparkAll()
	r.queue, r.catchQueue, r.catchRunning = nil, nil, 0
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
		old := r.resume[it]
		merged, ok := byOld[old]
		if !ok {
			merged = merge(old, b.roles, got, b.kind == DailyHistory)
			byOld[old] = merged
		}
		if merged == nil {
			delete(r.resume, it)
		} else {
			r.resume[it] = merged
		}
		r.set(it, todo)
	}
}

// queueCatchUp queues the search for what may have been missed: for everything
// that is confirmed, and for everything of which a part was fetched already. The
// rest will be fetched from the start anyway.
func (p *Plan) queueCatchUp(r *relay) {
	items := r.partlyFetched()
	r.catchQueue = p.groups(items, nil)
	r.missed, r.missedAll = false, false
	r.parked = slices.DeleteFunc(r.parked, func(k parking) bool { return k.catchUp })
	if len(items) == 0 && r.catchRunning == 0 {
		r.catchSince = 0
	}
}

// queueCatchUpOf does the same for some items, beside what is looked for already.
func (p *Plan) queueCatchUpOf(r *relay, items []Item) {
	waiting := len(items)
	for _, g := range r.catchQueue {
		waiting += len(g.items)
	}
	if waiting > 2*len(r.items) {
		p.queueCatchUp(r)
		return
	}
	items = slices.DeleteFunc(items, func(it Item) bool {
		st := r.items[it]
		return st == 0 || st == todo && r.resume[it] == nil
	})
	r.catchQueue = append(r.catchQueue, p.groups(items, nil)...)
	p.caughtUp(r)
}

// partlyFetched returns what is confirmed and what was fetched in part.
func (r *relay) partlyFetched() (items []Item) {
	for it, st := range r.items {
		if st == confirmed || st == inFlight || r.resume[it] != nil {
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
	for i := range r.parked { // what got nowhere is asked for now, together with this
		if k := &r.parked[i]; k.catchUp && k.resume == nil {
			k.until = time.Time{}
		}
	}
	r.unpark(time.Time{})
	for _, g := range r.catchQueue {
		note(g)
	}
	for _, k := range r.parked {
		if k.catchUp {
			note(k.group())
		}
	}
	if waiting > maxCatchUps*len(r.items) {
		p.queueCatchUp(r)
		return
	}
	items := slices.DeleteFunc(r.partlyFetched(), func(it Item) bool {
		_, ok := covered[it]
		return ok
	})
	for _, g := range p.groups(items, nil) {
		g.since = since
		r.catchQueue = append(r.catchQueue, g)
	}
	p.caughtUp(r)
}

// dispatch starts batches: first what may have been missed, then what is asked for
// by name, then the difference, then what comes up again and again.
func (p *Plan) dispatch(r *relay, now time.Time) {
	if now.Before(r.coolUntil) {
		return
	}
	for len(r.batches) < p.cfg.MaxBatches {
		switch {
		case len(r.catchQueue) > 0:
			g := r.catchQueue[0]
			r.catchQueue = r.catchQueue[1:]
			p.startRecent(r, g, now)
		case r.pollDue(now):
			p.startPoll(r, now)
		case r.namedDue(now):
			p.startNamed(r, now)
		case len(r.todo) > 0:
			p.startHistory(r, now)
		case len(r.sweep.chunks) > 0 && !now.Before(r.sweep.retryAt):
			p.startSweep(r, now)
		case p.descendantsDue(r, now):
			p.startDescendants(r, now)
		case r.auditDue && !r.busy():
			p.startAudit(r, now)
		case !r.busy() && p.authorsDue(r) > 0 && !now.Before(r.authorsRetry):
			p.startDeletions(r, now)
		default:
			return
		}
	}
}

// startHistory starts the next batch of the difference.
func (p *Plan) startHistory(r *relay, now time.Time) {
	if len(r.queue) == 0 {
		items := make([]Item, 0, len(r.todo))
		for it := range r.todo {
			items = append(items, it)
		}
		r.queue = p.groups(items, r.resume)
	}
	g := r.queue[0]
	r.queue = r.queue[1:]
	items := slices.DeleteFunc(g.items, func(it Item) bool {
		_, ok := r.todo[it]
		return !ok || r.resume[it] != g.resume
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
	items := slices.DeleteFunc(g.items, func(it Item) bool { return r.items[it] == 0 })
	if g.since == 0 {
		g.since = r.catchSince
	}
	qs, roles := p.queries(r, p.itemFilters(items), g.since, g.resume)
	if len(qs) == 0 {
		p.caughtUp(r)
		return
	}
	r.catchRunning++
	p.start(r, &batch{kind: Recent, items: items, roles: roles, resume: g.resume, since: g.since}, qs, now)
}

// authorsDue is how many authors a relay is to be asked about now. At each pass it
// is asked about a part of them, each once; the rest have their turn at a later one.
func (p *Plan) authorsDue(r *relay) int {
	return min(len(p.authors)-r.authorsAsked, p.cfg.AuthorsPerPass-r.authorsAsked)
}

func (p *Plan) startDeletions(r *relay, now time.Time) {
	n := p.authorsDue(r)
	b := &batch{kind: Deletions, authors: n, authorsAt: r.authorsAt}
	authors := make([]graspsync.PubKey, n)
	for i := range authors {
		if r.authorsAt >= len(p.authors) {
			r.authorsAt = 0
		}
		authors[i] = p.authors[r.authorsAt]
		r.authorsAt++
	}
	r.authorsAsked += n
	r.authorsRetry = time.Time{}
	var qs []Query
	if qs, b.roles = p.queries(r, filters.Deletions(authors), 0, nil); len(qs) > 0 {
		p.start(r, b, qs, now)
	}
}

// giveBackAuthors has the authors of a batch asked about again.
func (r *relay) giveBackAuthors(b *batch) {
	if b.kind == Deletions {
		r.authorsAsked = max(0, r.authorsAsked-b.authors)
		r.authorsAt = b.authorsAt
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
		r.behind++
	}
	b.deadline = deadline.Add(graceAfterDeadline)
	r.batches[p.lastBatch] = b
	p.emit(Start{Relay: r.url, Epoch: r.epoch, Batch: Batch{
		ID: p.lastBatch, Kind: b.kind, Items: len(b.items), Queries: qs, Deadline: deadline,
	}})
}
