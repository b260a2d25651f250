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

// checkpoints contains, per relay, the time up to which its events are durable.
type checkpoints struct {
	*core
	repos   *repoSyncIndex
	relays  *relaySyncIndex
	dialer  *dialer
	catchUp *catchUp

	restored   map[graspsync.RelayURL]*Kept // of relays that were not connected yet
	restoredAt time.Time
	changed    map[graspsync.RelayURL]struct{}
	settledAt  time.Time
}

func newCheckpoints(c *core, w *repoSyncIndex, k *relaySyncIndex, d *dialer, cu *catchUp) *checkpoints {
	return &checkpoints{core: c, repos: w, relays: k, dialer: d, catchUp: cu, changed: make(map[graspsync.RelayURL]struct{})}
}

type checkpointState struct {
	mark  time.Time // all confirmed items were complete and durable then
	dirty bool      // more than the mark has changed
}

// restore takes the loaded checkpoints that are not too old.
func (cp *checkpoints) restore(in Restore, now time.Time) {
	cp.restored = make(map[graspsync.RelayURL]*Kept)
	cp.restoredAt = now
	for _, k := range in.Relays {
		if k.Mark.After(now) || now.Sub(k.Mark) > cp.cfg.QuickReconnect || len(cp.restored) >= cp.cfg.MaxRelays {
			continue
		}
		if !slices.IsSorted(k.Items) {
			k.Items = slices.Sorted(slices.Values(k.Items))
		}
		cp.restored[k.Relay] = &k
	}
}

// resume treats the first connection after a restart like a reconnection after a loss at the mark.
// The saved items are confirmed.
func (cp *checkpoints) resume(r *relayState, now time.Time) bool {
	k := cp.restored[r.url]
	delete(cp.restored, r.url)
	if k == nil || !r.dial.aliveAt.IsZero() || k.Mark.After(now) || now.Sub(k.Mark) > cp.cfg.QuickReconnect {
		return false
	}
	for it := range r.history.items {
		if _, ok := slices.BinarySearch(k.Items, cp.repos.hash(it)); ok {
			r.history.set(it, confirmed)
		}
	}
	r.dial.aliveAt, r.checkpoint.mark = k.Mark, k.Mark
	r.pass.at = k.PassAt
	if r.pass.at.IsZero() || r.pass.at.After(now) {
		r.pass.at = now
	}
	return true
}

func (cp *checkpoints) settled(in Settled, now time.Time) {
	cp.settledAt = in.At
	for r := range cp.dialer.connected {
		if !r.dial.connectedAt.After(in.At) {
			r.checkpoint.moveMark(cp.completeUntil(r, in.At))
		}
	}
	if now.Sub(cp.restoredAt) > cp.cfg.QuickReconnect {
		cp.restored = nil
	}
}

// completeUntil returns the time up to which all confirmed items are complete, if everything
// received before at is processed.
func (cp *checkpoints) completeUntil(r *relayState, at time.Time) time.Time {
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	if since := cp.catchUp.unfetched(r); since != 0 {
		earlier(since.Time().UTC().Add(cp.cfg.Overlap))
	}
	earlier(r.live.poll.oldest(mainTier))
	return at
}

func (cp *checkpoints) markLost(r *relayState, aliveAt time.Time) {
	switch {
	case r.checkpoint.mark.IsZero():
	case aliveAt.Before(r.checkpoint.mark):
		r.checkpoint.mark = aliveAt
		r.checkpoint.dirty = true
	case cp.settledAt.After(r.checkpoint.mark):
		r.checkpoint.moveMark(cp.completeUntil(r, backoff.Earlier(cp.settledAt, aliveAt)))
	}
}

func (cp *checkpoints) forget(r *relayState) {
	cp.changed[r.url] = struct{}{}
	delete(cp.restored, r.url)
}

func (cp *checkpoints) readUntil(r *relayState) time.Time {
	return backoff.Later(r.dial.connectedAt, backoff.Later(r.checkpoint.mark, cp.settledAt))
}

// take returns the checkpoints of the named relays, or of all, and marks them as saved.
func (cp *checkpoints) take(only []graspsync.RelayURL) []Kept {
	if len(only) == 0 {
		only = sortedBy(cp.relays.byURL, graspsync.RelayURL.Compare)
		for u := range cp.restored {
			if cp.relays.byURL[u] == nil {
				only = append(only, u)
			}
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
			out = append(out, *cp.restored[u])
		}
	}
	slices.SortFunc(out, func(a, b Kept) int { return a.Relay.Compare(b.Relay) })
	return out
}

func (cp *checkpoints) of(r *relayState) (Kept, bool) {
	if k := cp.restored[r.url]; k != nil {
		return *k, true
	}
	if r.checkpoint.mark.IsZero() || r.history.ofStatus[confirmed] == 0 {
		return Kept{}, false
	}
	k := Kept{Relay: r.url, Mark: r.checkpoint.mark, PassAt: r.pass.at, Items: make([]uint64, 0, r.history.ofStatus[confirmed])}
	for it, st := range r.history.items {
		if st == confirmed && cp.repos.tier(it) == mainTier {
			k.Items = append(k.Items, cp.repos.hash(it))
		}
	}
	slices.Sort(k.Items)
	return k, true
}

// changes returns the relays of which more than the mark has changed since the last take.
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

func (cp *checkpoints) marks() map[graspsync.RelayURL]time.Time {
	out := make(map[graspsync.RelayURL]time.Time)
	for u, r := range cp.relays.byURL {
		if k := cp.restored[u]; k != nil {
			out[u] = k.Mark
		} else if !r.checkpoint.mark.IsZero() && r.history.ofStatus[confirmed] > 0 {
			out[u] = r.checkpoint.mark
		}
	}
	return out
}

func (s *checkpointState) moveMark(to time.Time) {
	if to.After(s.mark) {
		s.dirty = s.dirty || s.mark.IsZero()
		s.mark = to
	}
}
