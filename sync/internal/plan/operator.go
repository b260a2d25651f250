package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

func (in Bootstrap) apply(p *Plan) {
	r := p.relays[in.Relay]
	switch {
	case r == nil && in.Not:
		return
	case r == nil: // bootstrap relays do not count against MaxRelays
		r = p.newRelay(in.Relay)
		p.know(r)
	}
	r.bootstrap = !in.Not
	p.queue.leave(r) // advance queues it again under its current owner
	p.markDirty(r)
}

// Knows reports whether a relay is known.
func (p *Plan) Knows(u graspsync.RelayURL) bool { return p.relays[u] != nil }

func (in Retry) apply(p *Plan) {
	if r := p.relays[in.Relay]; r != nil {
		p.retry(r)
	}
}

func (p *Plan) retry(r *relayState) {
	r.dial.retryAt, r.dial.refusals = time.Time{}, 0
	r.coolUntil = time.Time{}
	r.retryBatches()
	p.markDirty(r)
}

// apply compares all history of a relay now, or at its next connection.
func (in Resync) apply(p *Plan) {
	r := p.relays[in.Relay]
	switch {
	case r == nil:
	case r.dial.connected:
		p.startDaily(r)
		p.markDirty(r)
	default:
		delete(p.checkpoints.restored, r.url)
		r.checkpoint.mark, r.checkpoint.dirty = time.Time{}, true
		r.dial.aliveAt, r.dial.absentSince = time.Time{}, time.Time{}
		p.retry(r)
	}
}

// apply requests layers 1 to 3 of a repository again.
func (in ResyncRepo) apply(p *Plan) {
	repo := p.repos.byRef[in.Ref]
	if repo == nil {
		return
	}
	for _, r := range repo.relays {
		r.history.redo(append(slices.Collect(maps.Keys(repo.threads[mainTier])), repo.item, Layer1))
		r.pending.unpark()
		p.markDirty(r)
	}
}
