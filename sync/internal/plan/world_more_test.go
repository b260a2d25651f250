package plan

import (
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/wire"
)

// more draws one of the rarer inputs.
func (w *world) more() {
	switch w.src.n(7) {
	case 0:
		if u, c := w.connection(); c != nil {
			in := LimitsChanged{Relay: u, Epoch: w.epoch(u), Limits: w.limits()}
			if in.Epoch == c.epoch {
				c.limits = in.Limits
			}
			w.step(in)
		}
	case 1:
		in := Named{Relay: w.url()}
		for range w.src.n(4) {
			in.IDs = append(in.IDs, rootID(w.src.n(30)))
		}
		w.step(in)
	case 2:
		w.step(Unserved{Relay: w.url(), IDs: []filters.EventID{rootID(w.src.n(30))}})
	case 3, 4:
		w.step(Settled{At: w.now.Add(-time.Duration(w.src.n(30)) * time.Second)})
		if w.src.n(2) == 0 {
			w.kept = w.plan.Kept()
		}
	case 5:
		w.restart()
	case 6:
		u := w.url()
		w.step(Useful{Relay: u, Epoch: w.epoch(u)})
	}
}

// calmInput draws mostly what moves things on.
func (w *world) calmInput() {
	w.now = w.now.Add([]time.Duration{0, 0, time.Second, 5 * time.Second, 30 * time.Second}[w.src.n(5)])
	switch w.src.n(20) {
	case 0:
		w.step(w.changes())
	case 1, 2, 17, 18:
		w.dialed()
	case 3:
		w.lose()
	case 4, 5, 6:
		w.done()
	case 7:
		switch w.src.n(4) {
		case 0:
			w.closeLive()
		case 1:
			w.restart()
		}
	case 8, 9:
		if at, ok := w.plan.NextWake(); ok && at.Sub(w.now) < 10*time.Minute { // no daily pass
			w.wake()
		}
	case 10:
		if w.src.n(3) == 0 {
			w.more()
		}
	case 19:
		w.step(Settled{At: w.now})
		if w.src.n(2) == 0 {
			w.kept = w.plan.Kept()
		}
	default:
		w.publish()
	}
}

func (w *world) limits() Limits {
	if w.calm { // less than is wanted
		return Limits{MaxMessage: 64 << 10, MaxFilters: 1 + w.src.n(3), MaxSubscriptions: 3 + w.src.n(5)}
	}
	return Limits{MaxMessage: 700 << w.src.n(4), MaxFilters: 3 + w.src.n(20), MaxSubscriptions: 4 + w.src.n(17)}
}

func (w *world) why() wire.Refusal {
	return []wire.Refusal{wire.RefusalOther, wire.RefusalTooManySubs, wire.RefusalRateLimited, wire.RefusalBadRequest}[w.src.n(4)]
}

// createdAt gives a root event its age, several the same.
func createdAt(id filters.EventID) nostr.Timestamp { return nostr.Timestamp(id[3]) * 7 % 13 }

func (w *world) rootChange(id filters.EventID) RootChange {
	return RootChange{
		ID: id, CreatedAt: createdAt(id),
		Repos: slices.SortedFunc(maps.Keys(w.roots[id]), filters.RepoRef.Compare),
	}
}

// tracked computes from scratch which root events of a repository are followed.
func (w *world) tracked(ref filters.RepoRef) []filters.EventID {
	var ids []filters.EventID
	for id, refs := range w.roots {
		if refs[ref] {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b filters.EventID) int {
		if d := createdAt(b) - createdAt(a); d != 0 {
			return int(d)
		}
		return b.Compare(a)
	})
	return ids[:min(len(ids), w.plan.cfg.MaxRoots)]
}

// restart kills the process. What it kept is from its end, or from earlier. The next
// one may be configured otherwise.
func (w *world) restart() {
	in := Restore{Relays: w.kept}
	if w.src.n(2) == 0 {
		in.Relays = w.plan.Kept()
	}
	w.now = w.now.Add(time.Duration(w.src.n(300)) * time.Second)
	w.note(clock(w.now) + " restart")
	w.restarts++
	cfg := w.plan.cfg
	if w.src.n(2) == 0 {
		cfg.NarrowLayer1 = !cfg.NarrowLayer1
	}
	w.plan = newPlan(cfg)
	w.lastEpoch, w.lastBatch, w.lastLive = 0, 0, 0
	clear(w.conns)
	unchecked := w.unchecked
	w.unchecked = true // the new plan does not know yet what is wanted
	w.step(in)
	// What is not wanted is not known any more.
	maps.DeleteFunc(w.repos, func(_ filters.RepoRef, rc RepoChange) bool { return rc.Level == LevelNone })
	var snap Snapshot
	for _, ref := range slices.SortedFunc(maps.Keys(w.repos), filters.RepoRef.Compare) {
		snap.Repos = append(snap.Repos, w.repos[ref])
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.roots), filters.EventID.Compare) {
		maps.DeleteFunc(w.roots[id], func(ref filters.RepoRef, _ bool) bool {
			_, known := w.repos[ref]
			return !known
		})
		if len(w.roots[id]) == 0 {
			delete(w.roots, id)
			continue
		}
		snap.Roots = append(snap.Roots, w.rootChange(id))
	}
	boot := slices.SortedFunc(maps.Keys(w.bootstrap), filters.RelayURL.Compare)
	clear(w.bootstrap)
	w.step(snap)
	for _, u := range boot {
		w.step(Bootstrap{Relay: u})
	}
	w.unchecked = unchecked
	w.kept = w.plan.Kept()
}

// checkUnproven counts the relays that have yet to prove themselves.
func (w *world) checkUnproven() {
	unproven, dialing := 0, 0
	for _, r := range w.plan.relays {
		if r.unproven {
			unproven++
			w.must(r.connecting || r.connected, "unproven without an attempt")
			if r.connecting {
				dialing++
			}
		}
		behind := 0
		for _, b := range r.batches {
			if b.background() {
				behind++
			}
		}
		w.must(behind == r.behind, "batches in the background")
		if r.named != nil {
			w.must(len(r.named.known) <= w.plan.cfg.MaxNamed, "too many named")
			n := len(r.named.queue)
			for _, b := range r.batches {
				n += len(b.named)
			}
			w.must(n == len(r.named.known) && n > 0, "named twice, or never asked for")
		}
	}
	require.Equal(w.t, unproven, w.plan.unproven)
	require.Equal(w.t, dialing, w.plan.dialingUnproven)
	require.LessOrEqual(w.t, unproven, max(1, w.plan.cfg.MaxConnections*3/4))
}

// checkOther checks that what finds no room live is followed another way, and that
// polling never falls back.
func (w *world) checkOther(r *relay, wanted, covered map[string]bool) {
	if covered["kinds"] {
		require.Nil(w.t, r.live.poll)
		return
	}
	require.NotNil(w.t, r.live.poll)
	for _, g := range r.live.poll.groups {
		maps.Copy(covered, keysOf(w.plan.itemFilters(g.items)...))
	}
	for key := range wanted {
		w.must(covered[key], "neither live nor polled: "+key)
	}
}
