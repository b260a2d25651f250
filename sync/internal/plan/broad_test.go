package plan

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// TestBroadWorlds is TestWorlds where relays are compared with as a whole whenever so much is
// wanted of them, and that fails or ends in any way.
func TestBroadWorlds(t *testing.T) {
	broad := 0
	for seed := range uint64(60) {
		w := newWorld(t, &randSource{rand.New(rand.NewPCG(seed, 41)), 300})
		w.plan.cfg.BroadItems = []int{1, 3, 8}[seed%3]
		w.broad, w.deep, w.long = true, seed%2 == 0, seed%5 == 0
		t.Cleanup(func() { dump(t, w, seed) })
		w.run()
		w.finish()
		broad += w.broads
		w.log = nil
	}
	t.Logf("%d relays were compared with as a whole", broad)
	require.Greater(t, broad, 300)
}

// wanting returns a plan in which n root events of one repository are wanted of a relay, and so
// many descendants, and what connecting to that does.
func wanting(t *testing.T, roots, below int, change func(*Config)) (*Plan, graspsync.RelayURL, []Effect) {
	t.Helper()
	c := defaults()
	c.BroadItems = 500
	if change != nil {
		change(&c)
	}
	p, u, repo := newPlan(c), relayURL(t, "r"), repoRef("x")
	numbers := make([]int, roots)
	for i := range numbers {
		numbers[i] = i
	}
	in := full(repo, []graspsync.RelayURL{u}, numbers...)
	for i := range below {
		in.Descendants = append(in.Descendants, DescendantChange{Of: filters.Descendant{ID: rootID(10_000 + i)}, Repos: []graspsync.RepoRef{repo}})
	}
	p.Step(start, in)
	return p, u, connect(t, p, start, u)
}

func TestBroad(t *testing.T) {
	p, u, effects := wanting(t, 1_000, 2_000, nil)
	b := one[Start](t, effects).Batch
	require.Equal(t, []Query{{Filter: nostr.Filter{}, Broad: 3_002 * broadBytes}}, b.Queries)
	require.Equal(t, 1_002, b.Items)
	require.Equal(t, History, b.Kind)
	require.NotEmpty(t, only[OpenLive](effects))
	require.IsType(t, OpenLive{}, effects[0], "what comes meanwhile comes live")

	effects = p.Step(start, Done{Relay: u, Epoch: 1, Batch: b.ID, Reconciled: true})
	require.Equal(t, []Confirmed{{Relay: u, Items: 1_002}}, only[Confirmed](effects))
	r := p.known.relays[u]
	require.False(t, r.busy())
	require.Empty(t, r.descendants.urgent)
	require.Equal(t, Live, r.phase())

	// The next pass is as cheap.
	effects = p.Step(r.pass.dueAt, Tick{})
	b = only[Start](effects)[0].Batch
	require.True(t, b.IsBroad())
	require.Equal(t, DailyHistory, b.Kind)
	require.Equal(t, 1_002, b.Items)
}

// Where that is of no use all is asked for at once as if there had been no attempt, and no
// other one follows on this connection.
func TestBroadInVain(t *testing.T) {
	for _, result := range []Result{Failed, Refused} {
		p, u, effects := wanting(t, 1_000, 0, nil)
		want, _, plain := wanting(t, 1_000, 0, func(c *Config) { c.BroadItems = 0 })
		effects = p.Step(start, Done{Relay: u, Epoch: 1, Batch: one[Start](t, effects).Batch.ID, Result: result})
		var got, wanted [][]Query
		for _, s := range only[Start](effects) {
			got = append(got, s.Batch.Queries)
		}
		for _, s := range only[Start](plain) {
			wanted = append(wanted, s.Batch.Queries)
		}
		require.Equal(t, wanted, got)
		require.Zero(t, p.known.relays[u].batches.failures)
		require.Equal(t, want.known.relays[u].phase(), p.known.relays[u].phase())
		require.Equal(t, 12, settle(p, start, u, effects), "10 of root events, and two")
		for _, s := range only[Start](p.Step(start.Add(time.Minute), full(repoRef("y"), []graspsync.RelayURL{u}, 2_000, 2_001))) {
			require.False(t, s.Batch.IsBroad())
		}
	}
}

// A connection that ends over it is not made for it again and again.
func TestBroadEndsTheConnection(t *testing.T) {
	p, u, effects := wanting(t, 1_000, 0, nil)
	require.True(t, one[Start](t, effects).Batch.IsBroad())
	p.Step(start, Lost{Relay: u, Epoch: 1, AliveAt: start, RetryAt: start.Add(time.Second), Good: true})
	now := start.Add(time.Minute)
	p.Step(now, Tick{})
	for _, s := range only[Start](connect(t, p, now, u)) {
		require.False(t, s.Batch.IsBroad())
	}
	r := p.known.relays[u]
	require.Len(t, r.batches.open, 4)

	p.Step(now, Lost{Relay: u, Epoch: 2, AliveAt: now, RetryAt: now.Add(time.Second), Good: true})
	now = now.Add(5 * time.Hour)
	p.Step(now, Tick{})
	require.True(t, only[Start](connect(t, p, now, u))[0].Batch.IsBroad())
}

// What could not be saved says nothing of the relay: it is compared with once that can be.
func TestBroadUnsaved(t *testing.T) {
	p, u, effects := wanting(t, 1_000, 600, nil)
	id := one[Start](t, effects).Batch.ID
	effects = p.Step(start, Done{Relay: u, Epoch: 1, Batch: id, Result: Failed, Unsaved: true})
	require.Empty(t, only[Start](effects), "deletions wait for the rest as well")
	at, ok := p.NextWake()
	require.True(t, ok)
	require.True(t, only[Start](p.Step(at, Tick{}))[0].Batch.IsBroad())
}

// Little is asked for as it always was.
func TestNotBroad(t *testing.T) {
	_, _, effects := wanting(t, 490, 0, nil)
	for _, s := range only[Start](effects) {
		assert.False(t, s.Batch.IsBroad())
	}
}

func one[T Effect](t *testing.T, effects []Effect) T {
	t.Helper()
	found := only[T](effects)
	require.Len(t, found, 1)
	return found[0]
}
