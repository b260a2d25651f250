package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// This file has the orders of the operator.

func (p *Plan) onBootstrap(in Bootstrap) {
	r := p.relays.byURL[in.Relay]
	switch {
	case r == nil && in.Not:
		return
	case r == nil: // bootstrap relays do not count against MaxRelays
		r = p.targets.newRelay(in.Relay)
		p.targets.know(r)
	}
	r.bootstrap = !in.Not
	p.dialer.queue.leave(r) // advance queues it again under its current owner
	p.markDirty(r)
}

// Knows reports whether a relay is known.
func (p *Plan) Knows(u graspsync.RelayURL) bool { return p.relays.byURL[u] != nil }

// retry ends all waits of a relay.
func (p *Plan) retry(r *relayState) {
	r.dial.retryAt, r.dial.refusals = time.Time{}, 0
	r.coolUntil = time.Time{}
	r.pending.failures = 0
	r.retryBatches()
	p.markDirty(r)
}

// resync compares all history of a relay now, or at its next connection.
func (p *Plan) resync(r *relayState, now time.Time) {
	if r.dial.connected {
		p.startDaily(r, now)
		p.markDirty(r)
		return
	}
	r.history.forget()
	delete(p.checkpoints.restored, r.url)
	r.checkpoint.mark, r.checkpoint.dirty = time.Time{}, true
	r.dial.aliveAt, r.dial.absentSince = time.Time{}, time.Time{}
	p.retry(r)
}

// resyncRepo requests layers 1 to 3 of a repository again.
func (p *Plan) resyncRepo(repo *repo) {
	for _, r := range repo.relays {
		items := append(slices.Collect(maps.Keys(repo.threads[mainTier])), repo.item, Layer1)
		r.history.redo(items)
		r.pending.unparkAll(r)
		p.markDirty(r)
	}
}
