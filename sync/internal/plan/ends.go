package plan

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// onDone takes in the end of a batch.
func (p *Plan) onDone(now time.Time, in Done) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil {
		return
	}
	b, ok := r.batches.open[in.Batch]
	if !ok {
		return
	}
	delete(r.batches.open, in.Batch)
	p.end(r, b, in, now)
	p.doneWith(r, now)
}

func (p *Plan) end(r *relay, b *batch, in Done, now time.Time) {
	if b.background() {
		r.batches.background--
	}
	if b.kind == Recent && b.poll == nil && b.desc == nil {
		r.catchUp.running--
	}
	if in.Result >= Failed {
		p.failed(r, b, in, now)
		return
	}
	r.batches.failures, r.batches.unsaved = 0, 0
	p.leaveUnproven(r)
	p.setAnswered(r)
	r.audit.reconciles = r.audit.reconciles || in.Reconciled
	if in.Result == Gaps {
		r.batches.gaps++
	}
	switch {
	case b.desc != nil:
		p.askedAbout(r, b)
	case b.poll != nil:
		b.poll.running, b.poll.since = false, b.begun
	case b.kind == Recent:
		p.caughtUp(r)
	case b.kind == NamedIDs:
		p.namedDone(r, b)
	case b.kind == History, b.kind == DailyHistory:
		p.confirm(r, b.items, in.Result == Gaps)
	}
}

// failed has what a batch did not bring asked for again: after a while that grows
// with each failure, or after the longest at once if the relay won't have it.
func (p *Plan) failed(r *relay, b *batch, in Done, now time.Time) {
	failures := &r.batches.failures
	if b.desc != nil {
		failures = &r.descendants.failures
	}
	if in.Unsaved = in.Unsaved || p.unsaving; in.Unsaved {
		failures, r.batches.late = &r.batches.unsaved, true
	}
	if !in.Late { // else there is just more than fits into the time of a batch
		*failures++
	}
	until := now.Add(p.retryAfter(max(1, *failures)))
	if in.Result == Refused {
		until = now.Add(p.longer(p.cfg.RetryMax))
	}
	switch {
	case b.desc != nil:
		r.descendants.notAskedAbout(b, in.Cursors, until)
	case b.poll != nil:
		b.poll.running = false
		if r.live.poll != nil && until.After(r.live.poll.at) {
			r.live.poll.at = until
		}
	case b.sweep != nil:
		if in.Unsaved {
			b.sweep.tries--
		}
		r.sweepFailed(b.sweep, until)
	case b.kind == Recent:
		r.history.parked = append(r.history.parked, parking{
			until: until, items: b.items, catchUp: true,
			resume: merge(b.resume, b.roles, in.Cursors, false), since: b.since,
		})
	case b.kind == History, b.kind == DailyHistory:
		p.giveUp(r, b, in.Cursors)
		r.park(slices.DeleteFunc(b.items, func(it Item) bool { return r.history.items[it] != todo }), until)
	case b.kind == Deletions:
		r.giveBackAuthors(b)
		r.deletions.retryAt = until
	case b.kind == NamedIDs:
		p.namedFailed(r, b, until, in)
	}
}

// onSaving has asked for at once what waits for a while because it could not be saved:
// that was no failure of the relays.
func (p *Plan) onSaving(in Saving) {
	if p.unsaving = in.Nothing; p.unsaving {
		return
	}
	var late []*relay
	for r := range p.connected {
		if r.batches.late {
			late = append(late, r)
		}
	}
	slices.SortFunc(late, func(a, b *relay) int { return graspsync.RelayURL.Compare(a.url, b.url) })
	for _, r := range late {
		r.batches.unsaved, r.batches.late = 0, false
		r.unparkAll()
		r.deletions.retryAt, r.rotation.retryAt = time.Time{}, time.Time{}
		if r.descendants != nil {
			r.descendants.retryAt = time.Time{}
		}
		if r.byID.ids != nil {
			r.byID.ids.retryAt = time.Time{}
		}
		if r.live.poll != nil {
			r.live.poll.at = time.Time{}
		}
		p.touch(r)
	}
}

// retryAfter is how long to wait after so many failures in a row.
func (p *Plan) retryAfter(failures int) time.Duration {
	d := p.cfg.RetryBase
	for range failures - 1 {
		if d *= 2; d >= p.cfg.RetryMax {
			d = p.cfg.RetryMax
			break
		}
	}
	return p.longer(d)
}

// confirm moves items from in flight to confirmed.
func (p *Plan) confirm(r *relay, items []Item, gaps bool) {
	n := 0
	for _, it := range items {
		if r.history.items[it] == inFlight {
			r.set(it, confirmed)
			n++
		}
	}
	if n > 0 {
		p.emit(Confirmed{Relay: r.url, Items: n, Gaps: gaps})
	}
}

// caughtUp forgets what may have been missed once all parts were fetched.
func (p *Plan) caughtUp(r *relay) {
	if !r.catching() && !r.catchUp.missed {
		r.catchUp.since = 0
	}
}

// expire ends batches that were given up on: nothing stays in flight for ever.
func (p *Plan) expire(r *relay, now time.Time) {
	var late []BatchID
	for id, b := range r.batches.open {
		if !now.Before(b.deadline) {
			late = append(late, id)
		}
	}
	slices.Sort(late)
	for _, id := range late {
		b := r.batches.open[id]
		delete(r.batches.open, id)
		p.emit(Cancel{Relay: r.url, Epoch: r.dial.epoch, Batch: id})
		p.end(r, b, Done{Result: Failed}, now)
	}
}

// onLiveClosed notes that a subscription is gone: what it asked for is subscribed anew
// after a while that grows with each refusal, and what was missed caught up with.
func (p *Plan) onLiveClosed(now time.Time, in LiveClosed) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil {
		return
	}
	if p.descClosed(r, in, now) {
		if !in.GaveWay {
			r.closedFor(in)
			r.live.stale = r.live.stale || len(r.live.subs) > r.liveRoom()
		}
		return
	}
	s := r.live.remove(in.Live)
	if s == nil {
		return
	}
	since := now
	if !in.Since.IsZero() && in.Since.Before(now) {
		since = in.Since
	}
	if in.Why == wire.RefusalRestricted && in.Live != r.live.kinds {
		p.refuses(r, s, since, now)
		return
	}
	r.live.lost, r.live.putOff = append(r.live.lost, s.filters...), 0
	r.closedFor(in)
	// What the relay could not keep up with for once is followed again at once, unless it
	// was so a moment ago. A refusal that came while another one is waited for belongs to
	// that.
	atOnce := in.Why == wire.RefusalOverflow && now.Sub(s.since) >= p.cfg.RetryBase
	if !atOnce && !now.Before(r.live.retryAt) {
		if now.Sub(r.live.retryAt) > p.cfg.RetryMax {
			r.live.refused = 0
		}
		r.live.refused++
		r.live.retryAt = now.Add(p.retryAfter(r.live.refused))
	}
	p.missedSome(r, since)
}

// onSkipped catches up with what was left out of what came live.
func (p *Plan) onSkipped(in Skipped) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil || !r.dial.connected {
		return
	}
	if r.catchUp.missed { // then all is caught up with once what is missing is followed
		p.missedSince(r, in.Since)
	} else {
		p.queueSkipped(r, p.catchSince(r, in.Since))
	}
	p.touch(r)
}
