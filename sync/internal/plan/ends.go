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
	p.dialer.doneWith(r, now)
}

func (p *Plan) end(r *relay, b *batch, in Done, now time.Time) {
	if b.background() {
		r.batches.background--
	}
	if in.Result >= Failed {
		p.batches.failed(r, b, in, now)
		return
	}
	r.batches.failures, r.batches.unsaved = 0, 0
	p.dialer.leaveUnproven(r)
	p.dialer.setAnswered(r)
	r.audit.reconciles = r.audit.reconciles || in.Reconciled
	if in.Result == Gaps {
		r.batches.gaps++
	}
	b.of.done(r, b, in.Result == Gaps)
}

// failed has what a batch did not bring asked for again: after a while that grows
// with each failure, or after the longest at once if the relay won't have it.
func (bs *batches) failed(r *relay, b *batch, in Done, now time.Time) {
	failures := &r.batches.failures
	if b.desc != nil {
		failures = &r.descendants.failures
	}
	if in.Unsaved = in.Unsaved || bs.unsaving; in.Unsaved {
		failures, r.batches.late = &r.batches.unsaved, true
	}
	if !in.Late { // else there is just more than fits into the time of a batch
		*failures++
	}
	until := now.Add(bs.retryAfter(max(1, *failures)))
	if in.Result == Refused {
		until = now.Add(bs.longer(bs.cfg.RetryMax))
	}
	b.of.failed(r, b, in, until)
}

// onSaving has asked for at once what waits for a while because it could not be saved:
// that was no failure of the relays.
func (p *Plan) onSaving(in Saving) {
	if p.batches.unsaving = in.Nothing; p.batches.unsaving {
		return
	}
	var late []*relay
	for r := range p.dialer.connected {
		if r.batches.late {
			late = append(late, r)
		}
	}
	slices.SortFunc(late, func(a, b *relay) int { return graspsync.RelayURL.Compare(a.url, b.url) })
	for _, r := range late {
		r.retryNow()
		p.markDirty(r)
	}
}

// retryAfter is how long to wait after so many failures in a row.
func (c *common) retryAfter(failures int) time.Duration {
	d := c.cfg.RetryBase
	for range failures - 1 {
		if d *= 2; d >= c.cfg.RetryMax {
			d = c.cfg.RetryMax
			break
		}
	}
	return c.longer(d)
}

// confirm moves items from in flight to confirmed.
func (h *history) confirm(r *relay, items []Item, gaps bool) {
	n := 0
	for _, it := range items {
		if r.history.items[it] == inFlight {
			r.history.set(it, confirmed)
			n++
		}
	}
	if n > 0 {
		h.emit(Confirmed{Relay: r.url, Items: n, Gaps: gaps})
	}
}

// caughtUp forgets what may have been missed once all parts were fetched.
func (cu *catchUp) caughtUp(r *relay) {
	if !r.catchUp.catching() && !r.catchUp.missed {
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

// skipped catches up with what was left out since a moment of what came live.
func (cu *catchUp) skipped(r *relay, since time.Time) {
	if r.catchUp.missed { // then all is caught up with once what is missing is followed
		cu.missedSince(r, since)
	} else {
		cu.queueSkipped(r, cu.lookSince(r, since))
	}
}

// onLiveClosed notes that a subscription is gone.
func (p *Plan) onLiveClosed(now time.Time, in LiveClosed) {
	r := p.current(in.Relay, in.Epoch)
	if r == nil {
		return
	}
	since := now
	if !in.Since.IsZero() && in.Since.Before(now) {
		since = in.Since
	}
	if d := r.descendants; d != nil && d.subs[in.Live] != nil {
		p.descendants.closed(r, in, since, now)
		if !in.GaveWay {
			p.live.refusedBelow(r, in, since, now)
		}
		return
	}
	p.live.closed(r, in, since, now)
}

// refusedBelow takes in that the relay has closed a subscription of descendants because it
// would not have it.
func (lv *live) refusedBelow(r *relay, in LiveClosed, since, now time.Time) {
	if in.Why == wire.RefusalRestricted {
		lv.leaveAlone(r, resting{below: true, since: since}, now)
	}
	lv.learn(r, in)
	r.live.stale = r.live.stale || len(r.live.subs) > r.liveRoom()
}

// closed notes that a subscription is gone: what it asked for is subscribed anew after a
// while that grows with each refusal, and what was missed caught up with.
func (lv *live) closed(r *relay, in LiveClosed, since, now time.Time) {
	s := r.live.remove(in.Live)
	if s == nil {
		return
	}
	if in.Why == wire.RefusalRestricted && in.Live != r.live.kinds {
		lv.refuses(r, s, since, now)
		return
	}
	r.live.lost, r.live.putOff = append(r.live.lost, s.filters...), 0
	lv.learn(r, in)
	// What the relay could not keep up with for once is followed again at once, unless it
	// was so a moment ago. A refusal that came while another one is waited for belongs to
	// that.
	atOnce := in.Why == wire.RefusalOverflow && now.Sub(s.since) >= lv.cfg.RetryBase
	if !atOnce && !now.Before(r.live.retryAt) {
		if now.Sub(r.live.retryAt) > lv.cfg.RetryMax {
			r.live.refused = 0
		}
		r.live.refused++
		r.live.retryAt = now.Add(lv.retryAfter(r.live.refused))
	}
	lv.catchUp.missedSome(r, since)
}
