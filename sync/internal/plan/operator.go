package plan

import (
	"time"

	"github.com/graspsync/graspsync"
)

// What an operator wants done at once.

// onBootstrap makes a relay one that is followed in any case, or not.
func (p *Plan) onBootstrap(in Bootstrap) {
	r := p.relays.byURL[in.Relay]
	switch {
	case r == nil && in.Not:
		return
	case r == nil: // what an operator names does not wait for room
		r = newRelay(in.Relay)
		p.targets.know(r)
	}
	r.bootstrap = !in.Not
	p.dialer.recount(r)
	p.dialer.queue.leave(r) // for a line that suits it
	p.markDirty(r)
}

// Knows reports whether a relay is one that is followed.
func (p *Plan) Knows(u graspsync.RelayURL) bool { return p.relays.byURL[u] != nil }

// retry has a relay dialed as soon as there is room, and what it failed to answer asked again.
func (p *Plan) retry(r *relayState) {
	r.dial.retryAt, r.dial.refusals = time.Time{}, 0
	r.coolUntil = time.Time{}
	r.pending.failures = 0
	r.retryNow()
	p.markDirty(r)
}

// resync has everything fetched again: on the connection that stands, or with the next one.
func (p *Plan) resync(r *relayState, now time.Time) {
	if r.dial.connected {
		p.startDaily(r, now)
		p.markDirty(r)
		return
	}
	r.history.forget()
	r.checkpoint.restored, r.checkpoint.mark, r.checkpoint.dirty = nil, time.Time{}, true
	r.dial.aliveAt, r.dial.absentSince = time.Time{}, time.Time{}
	p.retry(r)
}

// resyncRepo has what is wanted of a repository fetched again from each of its relays.
func (p *Plan) resyncRepo(repo *repo) {
	for _, r := range repo.relays {
		mark := &batchProgress{daily: true}
		for it := range repo.roots.All() {
			r.history.redo(it, mark)
		}
		r.history.redo(repo.item, mark)
		if repo.states != 0 {
			r.history.redo(repo.states, mark)
		} else {
			r.history.redo(Layer1, mark)
		}
		r.history.unparkAll()
		p.markDirty(r)
	}
}
