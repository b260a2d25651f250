package plan

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// before applies an input to the model.
func (w *world) before(in Input) {
	switch in := in.(type) {
	case Changes:
		w.wantChanges(in)
	case Snapshot:
		w.wantChanges(Changes(in))
		for of := range w.below {
			if !slices.ContainsFunc(in.Descendants, func(c DescendantChange) bool { return c.Of == of }) {
				w.wantBelow(DescendantChange{Of: of})
			}
		}
		for id := range w.roots {
			if !slices.ContainsFunc(in.Roots, func(c RootChange) bool { return c.ID == id }) {
				w.wantRoot(RootChange{ID: id})
			}
		}
		for ref := range w.repos {
			if !slices.ContainsFunc(in.Repos, func(c RepoChange) bool { return c.Ref == ref }) {
				w.wantRepo(RepoChange{Ref: ref})
			}
		}
	case Bootstrap:
		if w.bootstrap[in.Relay] = true; in.Not {
			delete(w.bootstrap, in.Relay)
		}
	case Retry:
		w.holding = w.conns[in.Relay] != nil && w.conns[in.Relay].connected
	case Resync:
		w.holding = w.conns[in.Relay] != nil && w.conns[in.Relay].connected
	case Connected:
		if c := w.conns[in.Relay]; c != nil && c.epoch == in.Epoch {
			c.connected, c.limits = true, in.Limits
			if k := w.plan.checkpoints.restored[in.Relay]; k != nil && w.now.Sub(k.Mark) <= w.plan.cfg.QuickReconnect && len(k.Items) > 1 {
				w.resumed++
			}
		}
	case DialFailed:
		c := w.conns[in.Relay]
		w.failing = c != nil && c.epoch == in.Epoch && !c.connected
		if c != nil && c.epoch == in.Epoch {
			delete(w.conns, in.Relay)
		}
	case Lost:
		if c := w.conns[in.Relay]; c != nil && c.epoch == in.Epoch {
			for id, got := range in.Cursors {
				w.fetched(in.Relay, c.batches[id], got)
			}
			delete(w.conns, in.Relay)
		}
	case Done:
		c := w.conns[in.Relay]
		if c == nil || c.epoch != in.Epoch {
			return
		}
		b := c.batches[in.Batch]
		delete(c.batches, in.Batch)
		if in.Result >= Failed {
			w.fetched(in.Relay, b, in.Cursors)
			return
		}
		w.fetched(in.Relay, b, slices.Repeat([]Cursor{CursorDone}, len(b.Queries)))
	case LiveClosed:
		if c := w.conns[in.Relay]; c != nil && c.epoch == in.Epoch {
			delete(c.live, in.Live)
		}
	}
}

func (w *world) wantChanges(c Changes) {
	for _, rc := range c.Repos {
		w.wantRepo(rc)
	}
	for _, rc := range c.Roots {
		w.wantRoot(rc)
	}
	for _, dc := range c.Descendants {
		w.wantBelow(dc)
	}
}

func (w *world) wantBelow(c DescendantChange) {
	delete(w.below, c.Of)
	for _, ref := range c.Repos {
		if _, known := w.repos[ref]; known {
			if w.below[c.Of] == nil {
				w.below[c.Of] = make(map[graspsync.RepoRef]bool)
			}
			w.below[c.Of][ref] = true
		}
	}
	w.dropRepos()
}

func (w *world) descendantChange(of filters.Descendant) DescendantChange {
	return DescendantChange{Of: of, Repos: slices.SortedFunc(maps.Keys(w.below[of]), graspsync.RepoRef.Compare)}
}

// wantedBelow computes from scratch the wanted descendants of a relay, with the keys of each.
func (w *world) wantedBelow(u graspsync.RelayURL) map[filters.Descendant][]string {
	out := make(map[filters.Descendant][]string)
	for of, refs := range w.below {
		for ref := range refs {
			if rc := w.repos[ref]; rc.Level == LevelFull && slices.Contains(listing(rc), u) {
				out[of] = slices.Sorted(maps.Keys(keysOf(filters.Descendants([]filters.Descendant{of})...)))
			}
		}
	}
	return out
}

// wantRepo sets a repository. An unwanted one is kept while it has root events.
func (w *world) wantRepo(rc RepoChange) {
	if _, known := w.repos[rc.Ref]; known || rc.Level != LevelNone {
		if rc.Level == LevelNone {
			rc.Relays = nil
		}
		w.repos[rc.Ref] = rc
	}
	w.dropRepos()
}

// listing returns the relays of a repository.
func listing(rc RepoChange) []graspsync.RelayURL { return rc.Relays }

func (w *world) wantRoot(rc RootChange) {
	delete(w.roots, rc.ID)
	for _, ref := range rc.Repos {
		if _, known := w.repos[ref]; known {
			if w.roots[rc.ID] == nil {
				w.roots[rc.ID] = make(map[graspsync.RepoRef]bool)
			}
			w.roots[rc.ID][ref] = true
		}
	}
	w.dropRepos()
}

func (w *world) dropRepos() {
	used := make(map[graspsync.RepoRef]bool)
	for _, refs := range w.roots {
		maps.Copy(used, refs)
	}
	for _, refs := range w.below {
		maps.Copy(used, refs)
	}
	maps.DeleteFunc(w.repos, func(ref graspsync.RepoRef, rc RepoChange) bool { return rc.Level == LevelNone && !used[ref] })
}

// wanted computes from scratch the wanted keys of a relay, one for each value of a filter. It
// returns nil if the relay is not wanted.
func (w *world) wanted(u graspsync.RelayURL) map[string]bool {
	listed := w.bootstrap[u]
	keys := keysOf(filters.Layer1())
	for ref, rc := range w.repos {
		if !slices.Contains(listing(rc), u) {
			continue
		}
		listed = true
		if rc.Level != LevelFull {
			continue
		}
		for _, tag := range []string{"a", "A", "q"} {
			keys[tag+" "+ref.String()] = true
		}
		keys["5a "+ref.Address(graspsync.KindAnnouncement)] = true
		keys["5a "+ref.Address(graspsync.KindState)] = true
		for id, refs := range w.roots {
			if !refs[ref] {
				continue
			}
			for _, tag := range []string{"e", "E", "q"} {
				keys[tag+" "+id.String()] = true
			}
		}
	}
	if !listed {
		return nil
	}
	for _, below := range w.wantedBelow(u) {
		for _, key := range below {
			keys[key] = true
		}
	}
	return keys
}

// worldRepos is the maximum number of repositories. Two have the same identifier.
const worldRepos = 8

func worldRef(n int) graspsync.RepoRef {
	if n == worldRepos-1 {
		return graspsync.RepoRef{Owner: graspsync.PubKey{2}, Identifier: fmt.Sprint(n - 1)}
	}
	return repoRef(fmt.Sprint(n))
}

// keysOf returns the keys in filters.
func keysOf(fs ...nostr.Filter) map[string]bool {
	keys := make(map[string]bool)
	for _, f := range fs {
		r := roleOf(f)
		for _, v := range f.Tags[r.tag] {
			if r.deletion {
				keys["5a "+v] = true
			} else {
				keys[r.tag+" "+v] = true
			}
		}
		if r.tag == "" && len(f.Authors) == 0 && len(f.Kinds) < 3 && slices.Contains(f.Kinds, graspsync.KindAnnouncement) {
			keys["layer1"] = true
		}
		if r.tag == "" && len(f.Kinds) > 2 {
			keys["kinds"] = true
		}
	}
	return keys
}

// publish publishes an event on a relay, possibly a state that is not wanted yet. The event is
// stored if a live subscription delivers it.
func (w *world) publish() {
	u := w.url()
	keys := w.wanted(u)
	if keys == nil {
		return
	}
	maps.Copy(keys, keysOf(filters.Layer1()))
	for _, below := range w.wantedBelow(u) {
		for _, key := range below {
			keys[key] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(keys))
	key := sorted[w.src.n(len(sorted))]
	if c := w.conns[u]; c != nil && c.connected {
		for _, covered := range c.live {
			if covered[key] || covered["kinds"] {
				return
			}
		}
	}
	w.miss(u, key)
}

// miss publishes an event on a relay without storing it.
func (w *world) miss(u graspsync.RelayURL, key string) {
	if w.missed[u] == nil {
		w.missed[u] = make(map[string][]worldEvent)
	}
	w.missed[u][key] = append(w.missed[u][key], worldEvent{w.now.Unix(), w.passed()})
	w.note(fmt.Sprintf("%s event %s %s", clock(w.now), short(u), key))
}

// fetched removes the events that a batch delivered from missed.
func (w *world) fetched(u graspsync.RelayURL, b worldBatch, got []Cursor) {
	for i, q := range b.Queries {
		if i >= len(got) || got[i] == CursorStart {
			continue
		}
		until, since := int64(math.MaxInt64), int64(0)
		if q.Until != 0 {
			until = min(until, q.Until)
		}
		if q.Filter.Since != nil {
			since = int64(*q.Filter.Since)
		}
		if q.Filter.Until != nil {
			until = min(until, int64(*q.Filter.Until))
		}
		if got[i] != CursorDone {
			since = max(since, int64(got[i])+1)
		} else if b.Kind == Deletions {
			w.deletions(u, q)
		}
		for key := range keysOf(q.Filter) {
			if len(w.missed[u][key]) == 0 {
				continue
			}
			w.missed[u][key] = slices.DeleteFunc(w.missed[u][key], func(ev worldEvent) bool {
				return since <= ev.at && ev.at <= until && ev.passed <= b.passed
			})
		}
	}
}

// perform checks an effect against the model and applies it.
func (w *world) perform(e Effect) {
	t := w.t
	conn := func(u graspsync.RelayURL, epoch uint64) *worldConn {
		c := w.conns[u]
		require.True(t, c != nil && c.connected && c.epoch == epoch, "effect without connection: %s", show(e))
		return c
	}
	switch e := e.(type) {
	case Dial:
		require.Nil(t, w.conns[e.Relay])
		require.Greater(t, e.Epoch, w.lastEpoch)
		w.lastEpoch = e.Epoch
		w.conns[e.Relay] = &worldConn{epoch: e.Epoch, live: make(map[LiveID]map[string]bool), batches: make(map[BatchID]worldBatch)}
	case Hangup:
		require.NotNil(t, w.conns[e.Relay])
		require.Equal(t, e.Epoch, w.conns[e.Relay].epoch)
		delete(w.conns, e.Relay)
	case Forget:
		require.Nil(t, w.wanted(e.Relay), "T2: forgotten though wanted")
		delete(w.missed, e.Relay)
		delete(w.refusals, e.Relay)
	case OpenLive:
		c := conn(e.Relay, e.Epoch)
		require.Greater(t, e.Live, w.lastLive)
		w.lastLive = e.Live
		require.LessOrEqual(t, len(e.Filters), c.limits.MaxFilters)
		for _, f := range e.Filters {
			require.False(t, filters.Empty(f))
			require.True(t, f.LimitZero)
		}
		c.live[e.Live] = keysOf(e.Filters...)
		w.missNothingLive(e.Relay)
	case CloseLive:
		delete(conn(e.Relay, e.Epoch).live, e.Live)
	case Start:
		c := conn(e.Relay, e.Epoch)
		require.Greater(t, e.Batch.ID, w.lastBatch)
		w.lastBatch = e.Batch.ID
		require.NotEmpty(t, e.Batch.Queries)
		require.Equal(t, w.now.Add(w.plan.cfg.BatchTimeout), e.Batch.Deadline)
		for _, q := range e.Batch.Queries {
			require.LessOrEqual(t, filters.Size(q.Filter), c.limits.MaxMessage/2)
			require.Equal(t, e.Batch.Kind == Recent || e.Batch.Kind == Audit, q.Filter.Since != nil)
			if e.Batch.Kind == Recent {
				require.Greater(t, int64(*q.Filter.Since), w.earliest-int64((time.Hour+w.back)/time.Second), "T7") // moves back with each change of the clock
			}
		}
		if e.Batch.Kind == Audit {
			w.audits++
		}
		c.batches[e.Batch.ID] = worldBatch{e.Batch, w.now.Unix(), w.passed()}
	case Cancel:
		c := conn(e.Relay, e.Epoch)
		require.Contains(t, c.batches, e.Batch)
		delete(c.batches, e.Batch)
	case Reset:
		w.daily = w.daily || e.Daily
	}
}

func (w *world) missNothingLive(u graspsync.RelayURL) {
	require.LessOrEqual(w.t, len(w.conns[u].live), 60, "T9: live subscriptions accumulate")
}
