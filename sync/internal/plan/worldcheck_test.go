package plan

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// check compares plan and world.
func (w *world) check() {
	p, t := w.plan, w.t
	full := 0
	for _, r := range p.repos.byRef {
		if r.level == LevelFull {
			full++
		}
	}
	counted, _ := p.Repos()
	require.Equal(t, full, counted, "repositories followed in full")
	dialing, connected := 0, 0
	for _, u := range w.urls {
		r, wanted := p.relays[u], w.wanted(u)
		require.Equal(t, wanted != nil, r != nil, "%s known", short(u))
		if r == nil {
			require.Nil(t, w.conns[u])
			continue
		}
		sameKeys(t, wanted, keysOf(p.repos.itemFilters(slices.Collect(maps.Keys(r.history.items)))...), "D3: targets of "+short(u))
		c := w.conns[u]
		require.Equal(t, c != nil && !c.connected, r.dial.connecting)
		require.Equal(t, c != nil && c.connected, r.dial.connected)
		w.checkFacts(r)
		if c == nil || !c.connected {
			require.Empty(t, r.pending.open)
			require.True(t, r.dial.connecting || len(r.dial.places) > 0 || !r.wakeAt.IsZero(), "T1: never tried again")
		} else {
			w.checkConnected(r, c, wanted)
		}
		if r.dial.connecting {
			dialing++
		}
		if r.dial.connected {
			connected++
		}
	}
	w.checkBackground()
	w.checkRepos()
	w.checkOwners()
	require.Len(t, p.attempts, dialing)
	require.Len(t, p.connected, connected)
	require.LessOrEqual(t, dialing, p.cfg.MaxDials)
	require.LessOrEqual(t, dialing+connected, p.cfg.MaxConnections)
	for _, r := range p.relays {
		w.must(r.wakeAt.IsZero() || !r.wakeAt.Before(p.wakeAt), "a timer is forgotten")
	}
	require.Empty(t, p.dirty)
}

// checkFacts checks that each item is exactly one of todo, in flight and confirmed.
func (w *world) checkFacts(r *relayState) {
	t := w.t
	var count [statuses]int
	flying := make(map[Item]int)
	for _, b := range r.pending.all() {
		for _, it := range b.items {
			if b.Kind == History || b.Kind == DailyHistory {
				flying[it]++
			}
		}
	}
	for it, st := range r.history.items {
		tier := w.plan.repos.tier(it)
		if tier == mainTier {
			count[st]++
		}
		isTodo := has(r.history.tiers[tier].todo, it)
		if st == todo || st == again {
			w.must(isTodo, "not asked for")
		} else {
			w.must(!isTodo, "asked for a second time")
		}
		if st == inFlight {
			w.must(flying[it] == 1, "D5: in flight in several batches, or in none")
			delete(flying, it)
		}
	}
	require.Empty(t, flying, "batches have items that are not in flight")
	require.Equal(t, count[todo:], r.history.ofStatus[todo:])
	require.Len(t, r.history.tiers[mainTier].todo, count[todo]+count[again])
	listed := 0
	for _, rc := range w.repos {
		if slices.Contains(listing(rc), r.url) {
			listed++
		}
	}
	require.Equal(t, listed, r.listed.repos)
}

func (w *world) checkConnected(r *relayState, c *worldConn, wanted map[string]bool) {
	t, p := w.t, w.plan
	require.ElementsMatch(t, slices.Collect(maps.Keys(c.batches)), slices.Collect(maps.Keys(r.pending.open)))
	subs := slices.Collect(maps.Keys(r.live.subs))
	require.ElementsMatch(t, slices.Collect(maps.Keys(c.live)), subs)
	w.methods[r.live.method()]++
	require.LessOrEqual(t, len(c.batches), p.cfg.MaxBatches)
	for id, b := range r.pending.open {
		require.True(t, !r.wakeAt.IsZero() && !r.wakeAt.After(b.Deadline.Add(graceAfterDeadline)), "T6: nothing ends batch %d", id)
	}
	cooling := w.now.Before(r.coolUntil)
	if !cooling && len(c.batches) < p.cfg.MaxBatches && r.wakeAt.After(w.now) {
		require.Zero(t, len(r.history.tiers[mainTier].todo), "T4: not asked for")
		require.Negative(t, p.nextCatchUp(r), "a part waits")
	}
	if cooling || w.now.Before(r.live.retryAt) {
		return
	}
	if !r.wakeAt.IsZero() && !r.wakeAt.After(w.now) {
		return // its tick is due
	}
	if !r.live.waitUntil.IsZero() {
		require.LessOrEqual(t, r.live.waitUntil.Sub(w.now), maxConsolidationWait+w.back)
		require.NotZero(t, len(r.history.tiers[mainTier].todo)+len(r.pending.open), "what is it put off for?")
		return
	}
	require.LessOrEqual(t, len(c.live), c.limits.LiveSubscriptions())
	if c.limits.MaxRetained > 0 {
		require.LessOrEqual(t, r.live.size(), c.limits.LiveBytes(), "bytes of what is followed")
	}
	require.Zero(t, len(r.live.missing))
	covered := make(map[string]bool)
	for id, keys := range c.live {
		if r.live.subs[id] != nil {
			maps.Copy(covered, keys)
		}
	}
	if l := r.live; len(l.refusedItems) > 0 {
		w.must(w.now.Before(l.refusedUntil) && l.refusedUntil.Before(w.now.Add(27*time.Hour+w.back)), "what is refused rests for a day")
	}
	if r.live.unfollowed > 0 {
		w.crowded[r.url] = true
		w.checkOther(r, wanted, covered)
		return
	}
	polled := make(map[string]bool)
	for _, g := range r.live.poll.groups {
		maps.Copy(polled, keysOf(p.repos.itemFilters(g.items)...))
	}
	if w.alive++; len(polled) > 0 {
		w.rotated++
	}
	maps.Copy(covered, polled)
	idle := len(covered)
	maps.DeleteFunc(covered, func(key string, _ bool) bool { return !wanted[key] })
	idle -= len(covered)
	// Unwanted items may be followed for a limited time.
	require.LessOrEqual(t, idle, 2*(len(wanted)+6*leastUnwanted), "idle on "+short(r.url))
	sameKeys(t, wanted, covered, "followed of "+short(r.url))
}

// must is require.True at a lower cost, because it is called a million times.
func (w *world) must(ok bool, what string) {
	if !ok {
		require.Fail(w.t, what)
	}
}

func sameKeys(t testing.TB, want, got map[string]bool, what string) {
	if !maps.Equal(want, got) {
		require.Equal(t, want, got, what)
	}
}

// finish ends all faults and checks that no event is permanently missed.
func (w *world) finish() {
	end := w.now.Add(6 * time.Hour)
	for range 5000 {
		progress := false
		for _, u := range w.urls {
			c := w.conns[u]
			if c == nil {
				continue
			}
			if !c.connected {
				w.step(Connected{Relay: u, Epoch: c.epoch, Limits: usual})
				progress = true
				continue
			}
			for _, id := range slices.Sorted(maps.Keys(c.batches)) {
				w.step(Done{Relay: u, Epoch: c.epoch, Batch: id})
				progress = true
			}
		}
		if progress {
			continue
		}
		at, ok := w.plan.NextWake()
		if !ok || at.After(end) {
			break
		}
		w.wake()
	}
	for _, u := range w.urls {
		c := w.conns[u]
		if c == nil {
			continue // there is no room for it
		}
		r := w.plan.relays[u]
		require.Equal(w.t, w.plan.status(r).Wanted, r.history.ofStatus[confirmed], "%s: not everything is confirmed", short(u))
		require.Zero(w.t, r.missingSince())
		require.Nil(w.t, r.byID.known, "named but not asked for")
		if len(w.plan.authors.list) <= w.plan.cfg.AuthorsPerPass {
			for _, a := range w.plan.authors.list {
				w.must(w.deleted[u][a.String()], "an author whose deletions were not asked for in this pass")
			}
		}
		keys := w.wanted(u)
		for _, below := range w.wantedBelow(u) {
			for _, key := range below {
				keys[key] = true
			}
		}
		for key := range keys {
			require.Empty(w.t, w.missed[u][key], "T8: %s: events of %s missed for good", short(u), key)
		}
	}
}
