package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// hubOf returns a plan with a connected relay that has confirmed everything of one repository with
// n root events.
func hubOf(t *testing.T, n int) (p *Plan, u graspsync.RelayURL) {
	t.Helper()
	p, u = newPlan(defaults()), relayURL(t, "a")
	roots := make([]int, n)
	for i := range roots {
		roots[i] = i
	}
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, roots...))
	settle(p, start, u, connect(t, p, start, u))
	return p, u
}

// sent returns the bytes of opened filters, the closed subscriptions, and the queries that effects
// cause until all batches have ended.
func sent(p *Plan, now time.Time, u graspsync.RelayURL, effects []Effect) (bytes, closed, queries int) {
	for queue := effects; len(queue) > 0; {
		e := queue[0]
		queue = queue[1:]
		switch e := e.(type) {
		case OpenLive:
			for _, f := range e.Filters.Spell() {
				bytes += filters.Size(f)
			}
		case CloseLive:
			closed++
		case Start:
			queries += len(e.Batch.Queries)
			queue = append(queue, p.Step(now, Done{Relay: u, Epoch: e.Epoch, Batch: e.Batch.ID})...)
		}
	}
	return bytes, closed, queries
}

// followed returns the root events in the open filters.
func followed(p *Plan, u graspsync.RelayURL) map[graspsync.EventID]bool {
	out := make(map[graspsync.EventID]bool)
	for _, s := range p.relays.byURL[u].live.subs {
		for _, f := range s.filters.Spell() {
			for _, v := range f.Tags["E"] {
				if id, err := graspsync.ParseEventID(v); err == nil {
					out[id] = true
				}
			}
		}
	}
	return out
}

// With a new root event every few seconds all filters were sent again each eighth time, because no
// slot was free. Now small subscriptions are merged, and the bytes for a thousand changes are a few
// times those of the filters.
func TestManyChangesSendLittleAgain(t *testing.T) {
	const before, news = 3_000, 1_000
	p, u := hubOf(t, before)
	now := start.Add(time.Hour)
	bytes, queries := 0, 0
	for i := range news {
		now = now.Add(6 * time.Second)
		b, _, q := sent(p, now, u, p.Step(now, Changes{Roots: []RootChange{{ID: rootID(before + i), Repos: []graspsync.RepoRef{repoRef("one")}}}}))
		bytes, queries = bytes+b, queries+q
	}
	own := news * 3 * fullFilter / filters.MaxValues
	t.Logf("%d bytes for %d, in %d subscriptions, %d queries", bytes, own, len(p.relays.byURL[u].live.subs), queries)
	assert.Less(t, bytes, 8*own)
	assert.Equal(t, 3*news, queries, "nothing but what is new")
	assert.Len(t, followed(p, u), before+news)
	assert.Zero(t, p.relays.byURL[u].live.unfollowed)
}

// Unwanted items are followed until they outnumber the wanted ones. Then the half-empty
// subscriptions are merged.
func TestIdleIsDroppedInTime(t *testing.T) {
	const n = 1_000
	p, u := hubOf(t, n)
	now := start.Add(time.Hour)
	total := 0
	for i := range n - 10 {
		bytes, closed, queries := sent(p, now, u, p.Step(now, Changes{Roots: []RootChange{{ID: rootID(i)}}}))
		total += bytes
		require.Zero(t, queries)
		if i < n/2 {
			require.Zero(t, bytes+closed, "for the %dth", i)
		}
	}
	one := 3 * fullFilter / filters.MaxValues
	assert.Less(t, total, n*one, "as much as was removed, at most")
	left := followed(p, u)
	for i := n - 10; i < n; i++ {
		assert.True(t, left[rootID(i)])
	}
	assert.LessOrEqual(t, len(left), 10+2*idleValues)
	assert.LessOrEqual(t, len(p.relays.byURL[u].live.subs), 2)
}

// While a consolidation was delayed for lack of room, all missing items were packed again after
// each change: half of the time of a first sync of 100,000 events.
func TestPutOffIsNotPackedAgain(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.cfg.MaxRoots = 50_000
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}))
	p.Step(start, Connected{Relay: u, Epoch: p.relays.byURL[u].dial.epoch, Limits: relaylimits.Requests{MaxMessage: 16 << 10, MaxFilters: 20, MaxSubscriptions: 4}})
	now := start.Add(time.Minute)
	for i := range 40 {
		c := Changes{}
		for k := range 500 {
			c.Roots = append(c.Roots, RootChange{ID: rootID(500*i + k), Repos: []graspsync.RepoRef{repoRef("one")}})
		}
		p.Step(now, c)
	}
	r := p.relays.byURL[u]
	require.False(t, r.live.postponed.IsZero())
	require.Greater(t, r.live.missing.Len(), 19_000)
	next := 1_000_000
	allocs := testing.AllocsPerRun(20, func() {
		next++
		p.Step(now, Changes{Roots: []RootChange{{ID: rootID(next), Repos: []graspsync.RepoRef{repoRef("one")}}}})
	})
	t.Logf("%.0f allocations a step", allocs)
	assert.Less(t, allocs, 100.0)
}

// One subscription that the relay closed made all others be sent again, with a catch-up of
// everything.
func TestOneClosedSubscriptionCostsItself(t *testing.T) {
	p, u := hubOf(t, 3_000)
	now := start.Add(time.Hour)
	settle(p, now, u, p.Step(now, Tick{}))
	r := p.relays.byURL[u]
	whole := len(r.live.subs)
	p.Step(now, LiveClosed{Relay: u, Epoch: r.dial.epoch, Live: 3, Why: wire.RefusalOther})
	require.Equal(t, LiveWithGaps, r.phase())
	now = now.Add(time.Minute)
	bytes, closed, queries := sent(p, now, u, p.Step(now, Tick{}))
	t.Logf("%d bytes, %d closed, %d queries; %d subscriptions", bytes, closed, queries, whole)
	assert.Less(t, bytes, 64<<10)
	assert.Zero(t, closed)
	assert.LessOrEqual(t, queries, 15)
	assert.Len(t, r.live.subs, whole)
	assert.Equal(t, Live, r.phase())
	assert.Zero(t, r.catchUp.since)
	assert.Len(t, followed(p, u), 3_000)
}

// The number of filters of a consolidation is known without building them, for any limits.
func TestFiltersOfARebuildAreCounted(t *testing.T) {
	for _, most := range []int{0, 2, 3, 7, 20} {
		for _, kinds := range []bool{false, true} {
			for n := range 6 {
				p, u := newPlan(defaults()), relayURL(t, "a")
				p.Step(start, Bootstrap{Relay: u})
				for i := range n {
					p.Step(start, full(repoRef(fmt.Sprint(i)), []graspsync.RelayURL{u}, 3*i, 3*i+1))
				}
				r := p.relays.byURL[u]
				r.limits = relaylimits.Requests{MaxValues: most, NeedsKinds: kinds}
				all := p.live.filters(r, slices.Collect(r.history.items.Keys()))
				require.Len(t, all, p.live.filtersAfterConsolidation(r), "%d values, kinds %t, %d repositories", most, kinds, n)
			}
		}
	}
}

// A subscription closed long after the last refusal is opened again as soon as after the first.
func TestRefusalsOfLongAgoAreForgotten(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, Bootstrap{Relay: u})
	opened := only[OpenLive](connect(t, p, start, u))
	now, r := start, p.relays.byURL[u]
	for i, c := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {0, 2}, {time.Hour, 3}, {time.Hour + 1, 1}, {0, 2}} {
		require.Len(t, opened, 1)
		now = now.Add(c.after)
		p.Step(now, LiveClosed{Relay: u, Epoch: r.dial.epoch, Live: opened[0].Live})
		require.Equal(t, c.want, r.live.refused, "closed for the %d. time", i+1)
		now = r.live.retryAt
		opened = only[OpenLive](p.Step(now, Tick{}))
	}
}

// The subscriptions of many relays share the ids of the plan. After an id is unwanted, open filters
// still contain it.
func TestIDsAreSharedByRelays(t *testing.T) {
	p := newPlan(defaults())
	repo, a, b := repoRef("x"), relayURL(t, "a"), relayURL(t, "b")
	root, below := rootID(1), rootID(10_000)
	in := full(repo, []graspsync.RelayURL{a, b}, 1)
	in.Descendants = []DescendantChange{{Of: filters.Descendant{ID: below}, Repos: []graspsync.RepoRef{repo}}}
	p.Step(start, in)
	asked := make(map[graspsync.RelayURL]standing.Filters)
	for _, u := range []graspsync.RelayURL{a, b} {
		for _, o := range only[OpenLive](connect(t, p, start, u)) {
			asked[u] = append(asked[u], o.Filters...)
		}
	}
	asks := func(u graspsync.RelayURL, id graspsync.EventID) bool {
		return slices.ContainsFunc(asked[u].Spell(), func(f nostr.Filter) bool { return slices.Contains(f.Tags["E"], id.String()) })
	}
	now := start
	for !asks(a, below) || !asks(b, below) {
		require.Less(t, now.Sub(start), time.Hour, "what descends from it is followed at some time")
		now = now.Add(time.Second)
		for queue := p.Step(now, Tick{}); len(queue) > 0; queue = queue[1:] {
			switch e := queue[0].(type) {
			case OpenLive:
				asked[e.Relay] = append(asked[e.Relay], e.Filters...)
			case Start:
				queue = append(queue, p.Step(now, Done{Relay: e.Relay, Epoch: e.Epoch, Batch: e.Batch.ID})...)
			}
		}
	}
	for _, id := range []graspsync.EventID{root, below} {
		at, ok := p.repos.rootItem(id)
		if !ok {
			at = p.repos.descendants[filters.Descendant{ID: id}]
		}
		other := graspsync.EventID{0xff, id[0], id[1]}
		*p.repos.infos[at].root = other // it never changes in production; here it shows that the id is shared
		require.True(t, asks(a, other) && asks(b, other))
		*p.repos.infos[at].root = id
	}
	p.Step(now, Changes{Repos: []RepoChange{{Ref: repo}}})
	p.Step(now, full(repoRef("y"), []graspsync.RelayURL{a, b}, 2, 3, 4, 5))
	require.True(t, asks(a, root) && asks(b, root) && asks(a, below) && asks(b, below))
}
