package plan

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// Kept is the state of a relay that survives a restart.
type Kept struct {
	Relay graspsync.RelayURL
	// Mark is a time at which all events of the relay for Items were processed.
	Mark   time.Time
	PassAt time.Time
	// Items are the hashes of the confirmed items, ascending. A hash is the first 8 bytes (big
	// endian) of SHA-256(salt ‖ kind byte ‖ value). Kind and value are:
	//
	//   - 1 and nothing for layer 1
	//   - 2 and the address (30617:...) for a repository
	//   - 3 and the 32 bytes of the id for a root event
	Items []uint64
}

type checkpoints struct {
	restored   map[graspsync.RelayURL]*Kept // of relays that were not connected yet
	restoredAt time.Time
	forgotten  map[graspsync.RelayURL]*Kept // nil values, to save
	settledAt  time.Time
}

type checkpointState struct {
	mark  time.Time // all confirmed items were complete and durable then
	saved time.Time // the mark of the last Changed
	dirty bool      // more than the mark has changed
}

// apply takes the loaded checkpoints that are not too old.
func (in Restore) apply(p *Plan) {
	p.checkpoints.restored, p.checkpoints.restoredAt = make(map[graspsync.RelayURL]*Kept), p.now
	for _, k := range in.Relays {
		if p.isRecent(k) && len(p.checkpoints.restored) < p.cfg.MaxRelays {
			slices.Sort(k.Items)
			p.checkpoints.restored[k.Relay] = &k
		}
	}
}

func (p *Plan) isRecent(k Kept) bool {
	return !k.Mark.After(p.now) && p.now.Sub(k.Mark) <= p.cfg.QuickReconnect
}

// resume treats the first connection after a restart like a reconnection after a loss at the mark.
// The saved items are confirmed.
func (p *Plan) resume(r *relayState) {
	k := p.checkpoints.restored[r.url]
	delete(p.checkpoints.restored, r.url)
	if k == nil || !r.dial.aliveAt.IsZero() || !p.isRecent(*k) {
		return
	}
	for it := range r.history.items {
		if _, ok := slices.BinarySearch(k.Items, p.repos.hash(it)); ok {
			r.history.change(it, confirmed)
		}
	}
	r.dial.aliveAt, r.checkpoint.mark = k.Mark, k.Mark
	r.passAt = k.PassAt
	if r.passAt.IsZero() || r.passAt.After(p.now) {
		r.passAt = p.now
	}
	r.passDueAt = p.nextPass(r.passAt)
}

func (in Settled) apply(p *Plan) {
	p.checkpoints.settledAt = in.At
	for r := range p.connected {
		if !r.dial.connectedAt.After(in.At) {
			p.moveMark(r, in.At)
		}
	}
	if p.now.Sub(p.checkpoints.restoredAt) > p.cfg.QuickReconnect {
		p.checkpoints.restored = nil
	}
}

// moveMark moves the mark forward to at, or to the time up to which all confirmed items are complete.
// Everything received before at is processed.
func (p *Plan) moveMark(r *relayState, at time.Time) {
	if since := r.missingSince(); since != 0 {
		at = backoff.Earlier(at, since.Time().UTC().Add(p.cfg.Overlap))
	}
	for _, g := range r.live.poll.groups {
		if g.tier == mainTier {
			at = backoff.Earlier(at, g.since)
		}
	}
	if s := &r.checkpoint; at.After(s.mark) {
		s.mark = at
	}
}

func (p *Plan) markLost(r *relayState, aliveAt time.Time) {
	switch s := &r.checkpoint; {
	case s.mark.IsZero():
	case aliveAt.Before(s.mark):
		s.mark, s.dirty = aliveAt, true
	case p.checkpoints.settledAt.After(s.mark):
		p.moveMark(r, backoff.Earlier(p.checkpoints.settledAt, aliveAt))
	}
}

func (p *Plan) readUntil(r *relayState) time.Time {
	return backoff.Later(r.dial.connectedAt, backoff.Later(r.checkpoint.mark, p.checkpoints.settledAt))
}

// Changed returns the checkpoints that have changed since the last call. nil means that the saved
// checkpoint is void. A change of only the mark counts if it is at least least.
func (p *Plan) Changed(least time.Duration) map[graspsync.RelayURL]*Kept {
	out := p.checkpoints.forgotten
	p.checkpoints.forgotten = make(map[graspsync.RelayURL]*Kept)
	for u, r := range p.relays {
		if s := &r.checkpoint; s.dirty || r.history.changed || s.mark.Sub(s.saved) >= least {
			out[u] = p.kept(r)
			s.saved, s.dirty, r.history.changed = s.mark, false, false
		}
	}
	return out
}

func (p *Plan) kept(r *relayState) *Kept {
	if k := p.checkpoints.restored[r.url]; k != nil {
		return k
	}
	if r.checkpoint.mark.IsZero() || r.history.ofStatus[confirmed] == 0 {
		return nil
	}
	k := &Kept{Relay: r.url, Mark: r.checkpoint.mark, PassAt: r.passAt, Items: make([]uint64, 0, r.history.ofStatus[confirmed])}
	for it, st := range r.history.items {
		if st == confirmed && p.repos.tier(it) == mainTier {
			k.Items = append(k.Items, p.repos.hash(it))
		}
	}
	slices.Sort(k.Items)
	return k
}
