package plan

import (
	"iter"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// Kept is what of a relay is worth keeping over a restart.
type Kept struct {
	Relay graspsync.RelayURL
	// Mark is a moment of our clock at which everything that the relay had for Items
	// was here and dealt with.
	Mark time.Time
	// PassAt is when the last pass over the whole history began.
	PassAt time.Time
	// Items are the confirmed ones, ascending. Each is the first 8 bytes (big endian)
	// of SHA-256(salt ‖ kind byte ‖ value), where kind and value are 1 and nothing for
	// layer 1, 2 and the address (30617:...) for a repository, 3 and the 32 bytes of
	// the id for a root event, 4 and the address for the states of a repository, 5 and
	// nothing for a layer 1 of announcements alone: what was confirmed with states is
	// not taken for what was confirmed without, nor the other way around.
	Items []uint64
}

// checkpoints knows up to when what each relay has is here and durable, so that after a
// restart only the rest is asked for.
type checkpoints struct {
	*core
	repos  *repoSyncIndex
	relays *relaySyncIndex
	dialer *dialer

	restored   map[graspsync.RelayURL]*restored // relays that are not known yet
	restoredAt time.Time
	changed    map[graspsync.RelayURL]struct{} // since the last checkpoint
	settledAt  time.Time
}

func newCheckpoints(c *core, w *repoSyncIndex, k *relaySyncIndex, d *dialer) *checkpoints {
	return &checkpoints{core: c, repos: w, relays: k, dialer: d, changed: make(map[graspsync.RelayURL]struct{})}
}

// restored is a checkpoint that waits for the first connection.
type restored struct {
	mark, passAt time.Time
	items        []uint64 // ascending
}

func (k *restored) checkpoint(u graspsync.RelayURL) Kept {
	return Kept{Relay: u, Mark: k.mark, PassAt: k.passAt, Items: k.items}
}

// checkpointState is what of one relay survives a restart, besides its items.
type checkpointState struct {
	restored *restored // until the first connection
	mark     time.Time // everything confirmed was complete and durable then
	dirty    bool      // something else than the mark has changed
}

// restore takes in what was kept. What is too old to be of use is left out: such
// relays are fetched from in full.
func (cp *checkpoints) restore(in Restore, now time.Time) {
	cp.restored = make(map[graspsync.RelayURL]*restored)
	cp.restoredAt = now
	for _, k := range in.Relays {
		if k.Mark.After(now) || now.Sub(k.Mark) > cp.cfg.QuickReconnect || len(cp.restored) >= cp.cfg.MaxRelays {
			continue
		}
		items := k.Items
		if !slices.IsSorted(items) {
			items = slices.Sorted(slices.Values(items))
		}
		cp.restored[k.Relay] = &restored{mark: k.Mark, passAt: k.PassAt, items: items}
	}
	for _, r := range cp.relays.byURL {
		if r.dial.aliveAt.IsZero() {
			cp.recall(r)
		}
	}
}

// recall gives a relay that becomes known what was kept of it.
func (cp *checkpoints) recall(r *relayState) {
	if k, ok := cp.restored[r.url]; ok {
		r.checkpoint.restored = k
		delete(cp.restored, r.url)
	}
}

// resume makes the first connection after a restart one that was lost at the
// mark, if that is not too long ago: the items kept are confirmed then. All others
// are fetched from the start.
func (cp *checkpoints) resume(r *relayState, now time.Time) bool {
	k := r.checkpoint.restored
	r.checkpoint.restored = nil
	if k == nil || !r.dial.aliveAt.IsZero() || k.mark.After(now) || now.Sub(k.mark) > cp.cfg.QuickReconnect {
		return false
	}
	for it := range r.history.items.Keys() {
		if _, ok := slices.BinarySearch(k.items, cp.repos.hash(it)); ok {
			r.history.set(it, confirmed)
		}
	}
	r.dial.aliveAt, r.checkpoint.mark = k.mark, k.mark
	r.pass.at = k.passAt
	if r.pass.at.IsZero() || r.pass.at.After(now) {
		r.pass.at = now
	}
	return true
}

// settled moves the marks of the relays whose connections stand.
func (cp *checkpoints) settled(in Settled, now time.Time) {
	cp.settledAt = in.At
	for r := range cp.dialer.connected {
		if !r.dial.connectedAt.After(in.At) {
			r.checkpoint.moveMark(cp.completeUntil(r, in.At))
		}
	}
	if now.Sub(cp.restoredAt) > cp.cfg.QuickReconnect {
		cp.restored = nil // nobody wants these relays any more
	}
}

// completeUntil returns up to when everything confirmed is complete, if all that was
// received before at is dealt with: what may have been missed, and what is polled,
// is complete up to an earlier moment.
func (cp *checkpoints) completeUntil(r *relayState, at time.Time) time.Time {
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	if r.catchUp.since != 0 {
		earlier(r.catchUp.since.Time().UTC().Add(cp.cfg.Overlap))
	}
	earlier(r.live.postponed)
	if r.live.poll != nil {
		earlier(r.live.poll.oldest())
	}
	return at
}

// markLost sets the mark of a connection that was last known to stand at aliveAt:
// what was settled later is not known to be complete.
func (cp *checkpoints) markLost(r *relayState, aliveAt time.Time) {
	switch {
	case r.checkpoint.mark.IsZero():
	case aliveAt.Before(r.checkpoint.mark):
		r.checkpoint.mark = aliveAt
		r.checkpoint.dirty = true
	case cp.settledAt.After(r.checkpoint.mark):
		at := cp.settledAt
		if aliveAt.Before(at) {
			at = aliveAt
		}
		r.checkpoint.moveMark(cp.completeUntil(r, at))
	}
}

// forget notes that a relay has no checkpoint any more.
func (cp *checkpoints) forget(r *relayState) { cp.changed[r.url] = struct{}{} }

// readUntil returns up to when everything that a connected relay has sent was read for sure:
// what it has sent since all was settled may not have been.
func (cp *checkpoints) readUntil(r *relayState) time.Time {
	until := r.dial.connectedAt
	if r.checkpoint.mark.After(until) {
		until = r.checkpoint.mark
	}
	if cp.settledAt.After(until) {
		until = cp.settledAt
	}
	return until
}

// jumped sets back what depends on a clock that was set back.
func (cp *checkpoints) jumped(back time.Duration) {
	cp.settledAt = time.Time{}
	for _, k := range cp.restored {
		setBack(back, &k.mark)
	}
}

// take returns what is worth keeping of these relays, or of all if none is named, and
// counts it as kept.
func (cp *checkpoints) take(only []graspsync.RelayURL) []Kept {
	if len(only) == 0 {
		only = sortedBy(cp.relays.byURL, graspsync.RelayURL.Compare)
		for u := range cp.restored {
			only = append(only, u)
		}
		clear(cp.changed)
	}
	var out []Kept
	for _, u := range only {
		delete(cp.changed, u)
		r, known := cp.relays.byURL[u]
		switch {
		case known:
			r.checkpoint.dirty, r.history.changed = false, false
			if k, ok := cp.of(r); ok {
				out = append(out, k)
			}
		case cp.restored[u] != nil:
			out = append(out, cp.restored[u].checkpoint(u))
		}
	}
	slices.SortFunc(out, func(a, b Kept) int { return a.Relay.Compare(b.Relay) })
	return out
}

func (cp *checkpoints) of(r *relayState) (Kept, bool) {
	if r.checkpoint.restored != nil {
		return r.checkpoint.restored.checkpoint(r.url), true
	}
	if r.checkpoint.mark.IsZero() || r.history.ofStatus[confirmed] == 0 {
		return Kept{}, false
	}
	k := Kept{Relay: r.url, Mark: r.checkpoint.mark, PassAt: r.pass.at, Items: make([]uint64, 0, r.history.ofStatus[confirmed])}
	for it, st := range r.history.items.All() {
		if st == confirmed {
			k.Items = append(k.Items, cp.repos.hash(it))
		}
	}
	slices.Sort(k.Items)
	return k, true
}

// changes returns the relays of which more than the mark has changed since it was kept.
func (cp *checkpoints) changes() []graspsync.RelayURL {
	out := sortedBy(cp.changed, graspsync.RelayURL.Compare)
	for u, r := range cp.relays.byURL {
		if _, also := cp.changed[u]; (r.checkpoint.dirty || r.history.changed) && !also {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, graspsync.RelayURL.Compare)
	return out
}

// marks returns the marks of all relays of which something is kept, in no order.
func (cp *checkpoints) marks() iter.Seq2[graspsync.RelayURL, time.Time] {
	return func(yield func(graspsync.RelayURL, time.Time) bool) {
		for u, r := range cp.relays.byURL {
			mark := r.checkpoint.mark
			if r.checkpoint.restored != nil {
				mark = r.checkpoint.restored.mark
			} else if r.history.ofStatus[confirmed] == 0 {
				continue
			}
			if !mark.IsZero() && !yield(u, mark) {
				return
			}
		}
	}
}

// moveMark moves a mark forward.
func (s *checkpointState) moveMark(to time.Time) {
	if to.After(s.mark) {
		s.dirty = s.dirty || s.mark.IsZero()
		s.mark = to
	}
}

// jumped forgets up to when a relay was complete, by a clock that was set.
func (s *checkpointState) jumped(back time.Duration) {
	s.dirty = s.dirty || !s.mark.IsZero()
	s.mark = time.Time{}
	if s.restored != nil {
		setBack(back, &s.restored.mark)
	}
}
