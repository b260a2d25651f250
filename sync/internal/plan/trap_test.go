package plan

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// T1: a bootstrap relay that was down at the first attempt was never tried again,
// because retrying depended on having confirmed items.
func TestTrapT1_DownAtFirst(t *testing.T) {
	p, u, now := newPlan(defaults()), relayURL(t, "a"), start
	effects := p.Step(now, Bootstrap{Relay: u})
	for range 50 {
		dials := only[Dial](effects)
		require.Len(t, dials, 1)
		effects = p.Step(now, DialFailed{Relay: u, Epoch: dials[0].Epoch, RetryAt: now.Add(time.Hour)})
		require.Empty(t, effects)
		wake, ok := p.NextWake()
		require.True(t, ok)
		assert.Equal(t, now.Add(time.Hour), wake)
		now = wake
		effects = p.Step(now, Tick{})
	}
	require.Len(t, only[Start](connect(t, p, now, u)), 1)
}

// T2: a relay was cut as empty while its first batch was in flight.
func TestTrapT2_NotCutWhileInFlight(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}))
	connect(t, p, start, u)
	// the repository has nothing to ask for yet, but lists the relay
	effects := p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef("one"), Relays: []graspsync.RelayURL{u}, Level: LevelStateOnly}}})
	assert.Empty(t, only[Hangup](effects))
	assert.Empty(t, only[Forget](effects))
}

// T3, T4: a rate limit was waited out under a lock, or dropped new requests.
func TestTrapT4_RateLimitQueues(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, Bootstrap{Relay: u})
	epoch := only[Start](connect(t, p, start, u))[0].Epoch
	p.Step(start, RateLimited{Relay: u, Epoch: epoch, Until: start.Add(65 * time.Second)})
	assert.Empty(t, p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2)))
	// others are not held up
	other := relayURL(t, "b")
	assert.Len(t, only[Dial](p.Step(start, Bootstrap{Relay: other})), 1)

	wake, _ := p.NextWake()
	require.Equal(t, start.Add(65*time.Second), wake)
	effects := p.Step(wake, Tick{})
	assert.Len(t, only[OpenLive](effects), 1)
	assert.Len(t, only[Start](effects), 2)
}

// T6: items of a batch that never ended counted as in flight for ever.
func TestTrapT6_BatchDeadline(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, Bootstrap{Relay: u})
	b := only[Start](connect(t, p, start, u))[0].Batch
	assert.Equal(t, start.Add(30*time.Minute), b.Deadline)
	wake, _ := p.NextWake()
	effects := p.Step(wake, Tick{})
	assert.Equal(t, b.ID, only[Cancel](effects)[0].Batch)
	assert.Zero(t, p.Status()[0].InFlight)
	wake, _ = p.NextWake()
	assert.Len(t, only[Start](p.Step(wake, Tick{})), 1)
	assert.Empty(t, p.Step(wake, Done{Relay: u, Epoch: 1, Batch: b.ID}), "it comes too late")
}

// T7: the since of a quick reconnect was computed from elapsed seconds (1970), or
// from the moment of connecting. T8: it was used for layer 1 only.
func TestTrapT7T8_QuickReconnect(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
	settle(p, start, u, connect(t, p, start, u))
	alive := start.Add(time.Hour)
	p.Step(alive.Add(time.Minute), Lost{Relay: u, Epoch: 1, AliveAt: alive, RetryAt: alive.Add(2 * time.Minute)})
	p.Step(alive.Add(2*time.Minute), Tick{})
	batches := only[Start](connect(t, p, alive.Add(14*time.Minute), u))
	require.Len(t, batches, 3)
	tags := make(map[string]bool)
	for _, s := range batches {
		assert.Equal(t, Recent, s.Batch.Kind)
		for _, q := range s.Batch.Queries {
			tags[roleOf(q.Filter).tag] = true
			require.NotNil(t, q.Filter.Since)
			assert.Equal(t, alive.Add(-15*time.Minute).Unix(), int64(*q.Filter.Since))
		}
	}
	assert.Equal(t, map[string]bool{"": true, "a": true, "A": true, "q": true, "e": true, "E": true}, tags)
}

// T9: live subscriptions accumulated at each reconnect.
func TestTrapT9_LiveDoesNotAccumulate(t *testing.T) {
	p, u, now := newPlan(defaults()), relayURL(t, "a"), start
	p.Step(now, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2, 3))
	for range 20 {
		effects := connect(t, p, now, u)
		assert.Len(t, only[OpenLive](effects), 1)
		settle(p, now, u, effects)
		st := p.Status()[0]
		assert.Equal(t, 1, st.LiveSubs)
		assert.Equal(t, 8, st.LiveFilters)
		now = now.Add(time.Minute)
		p.Step(now, Lost{Relay: u, Epoch: p.known.relays[u].dial.epoch, AliveAt: now, RetryAt: now})
		assert.Zero(t, p.Status()[0].LiveSubs)
	}
}

// T13: what came late for a relay already forgotten crashed or leaked.
func TestTrapT13_LateInputs(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}))
	started := only[Start](connect(t, p, start, u))[0]
	effects := p.Step(start, Snapshot{})
	require.Equal(t, []Effect{Hangup{Relay: u, Epoch: 1}, Forget{Relay: u}}, effects)
	for _, in := range []Input{
		Done{Relay: u, Epoch: 1, Batch: started.Batch.ID}, Lost{Relay: u, Epoch: 1}, LiveClosed{Relay: u, Epoch: 1, Live: 1},
		Connected{Relay: u, Epoch: 1}, DialFailed{Relay: u, Epoch: 1}, RateLimited{Relay: u, Epoch: 1}, Tick{},
	} {
		assert.Empty(t, p.Step(start, in), "%T", in)
	}
	assert.Empty(t, p.known.relays)
	assert.Empty(t, p.timers.heap)
	assert.Empty(t, p.want.repos)
	assert.Empty(t, p.dialer.connected)
}

// D3: want-state only grew: relays no longer listed, repositories deleted.
func TestTrapD3_WantShrinks(t *testing.T) {
	p := newPlan(defaults())
	all := urls(t, 20)
	for round := range 30 {
		var c Changes
		for i := range 20 {
			f := full(repoRef(fmt.Sprint(i)), all[i:i+1], 1000*round+i)
			c.Repos, c.Roots = append(c.Repos, f.Repos...), append(c.Roots, f.Roots...)
		}
		p.Step(start, Snapshot(c))
	}
	assert.Equal(t, 20, p.want.roots.Len())
	assert.LessOrEqual(t, len(p.want.infos), 1+20+2*20, "numbers of items are not used again")
	p.Step(start, Snapshot{})
	assert.Empty(t, p.want.repos)
	assert.Zero(t, p.want.roots.Len())
	assert.Empty(t, p.known.relays)
	assert.False(t, p.dialer.anyWaits(), "forgotten relays wait to be dialed")
	assert.Empty(t, p.owners.of)
	assert.Zero(t, p.owners.table.Len())
}

// A relay that only a repository in state-only listed was never forgotten.
func TestStateOnlyRelayIsForgotten(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef("one"), Relays: []graspsync.RelayURL{u}, Level: LevelStateOnly}}})
	effects := p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef("one")}}})
	assert.Equal(t, []Effect{Hangup{Relay: u, Epoch: 1}, Forget{Relay: u}}, effects)
}

// D5: every change sent every filter to every relay.
func TestTrapD5_OnlyWhatChanged(t *testing.T) {
	p, all := newPlan(defaults()), urls(t, 10)
	for i, u := range all {
		p.Step(start, full(repoRef(fmt.Sprint(i)), []graspsync.RelayURL{u, all[(i+1)%10]}, 10*i, 10*i+1))
	}
	for _, u := range all {
		settle(p, start, u, connect(t, p, start, u))
	}
	effects := p.Step(start, full(repoRef("3"), []graspsync.RelayURL{all[3], all[4]}, 30, 31, 999))
	assert.Len(t, effects, 4)
	for _, o := range only[OpenLive](effects) {
		assert.Equal(t, "#e(1) #E(1) #q(1)", showFilters(o.Filters.Spell()))
		assert.Contains(t, all[3:5], o.Relay)
	}
	for _, s := range only[Start](effects) {
		assert.Equal(t, 1, s.Batch.Items)
	}
	assert.Empty(t, p.Step(start, full(repoRef("3"), []graspsync.RelayURL{all[4], all[3]}, 30, 31, 999)), "nothing has changed")
}

// D6: a repository that is known but not accepted got layers 2 and 3 too early.
func TestTrapD6_StateOnly(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	c := full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2, 3)
	c.Repos[0].Level = LevelStateOnly
	p.Step(start, c)
	effects := connect(t, p, start, u)
	require.Len(t, only[Start](effects), 1)
	assert.Equal(t, "layer1", showFilters(only[OpenLive](effects)[0].Filters.Spell()))
	assert.Equal(t, 1, settle(p, start, u, effects))
	c.Repos[0].Level, c.Roots = LevelFull, nil
	effects = p.Step(start, c)
	assert.Equal(t, "#a(1) #A(1) #q(1) 5#a(2) #e(3) #E(3) #q(3)", showFilters(only[OpenLive](effects)[0].Filters.Spell()))
	assert.Len(t, only[Start](effects), 2)
}

// An item was confirmed by a batch that had asked for another one: the number of a
// root event that was deleted was given to a new one while the batch was in flight.
func TestNumberUsedAgainWhileInFlight(t *testing.T) {
	c := defaults()
	c.MaxBatches = 8
	p, u := newPlan(c), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}))
	settle(p, start, u, connect(t, p, start, u))
	old := only[Start](p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1)))
	require.Len(t, old, 1)
	effects := p.Step(start, Changes{Roots: []RootChange{{ID: rootID(1)}, {ID: rootID(2), Repos: []graspsync.RepoRef{repoRef("one")}}}})
	require.Len(t, only[Start](effects), 1)
	effects = p.Step(start, Done{Relay: u, Epoch: 1, Batch: old[0].Batch.ID})
	assert.Empty(t, effects)
	assert.Equal(t, 1, p.Status()[0].InFlight)
}

// The filters of a group were built as if its items still were what they had been
// when it was made.
func TestNumberUsedAgainInQueue(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2))
	one, two := p.want.item(rootID(1)), p.want.item(rootID(2))
	p.want.infos[one] = info{kind: itemRepo, repo: p.want.repos[repoRef("one")]}
	assert.Equal(t, "#a(1) #A(1) #q(1) 5#a(2) #e(1) #E(1) #q(1)", showFilters(p.want.itemFilters([]Item{one, two})))
}

// A filter of history exceeded the message size of a relay that allows little.
func TestHistoryFitsMessages(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	roots := make([]int, 100)
	for i := range roots {
		roots[i] = i
	}
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, roots...))
	limits := relaylimits.Requests{MaxMessage: 4096, MaxFilters: 10, MaxSubscriptions: 20}
	effects := p.Step(start, Connected{Relay: u, Epoch: 1, Limits: limits})
	var queries int
	for _, s := range only[Start](effects) {
		for _, q := range s.Batch.Queries {
			queries++
			assert.LessOrEqual(t, filters.Size(q.Filter), 2048)
		}
	}
	assert.Equal(t, 1+4+3*4, queries)
	// a relay that takes next to nothing gets nothing, and that is counted
	p.Step(start, Lost{Relay: u, Epoch: 1, RetryAt: start})
	limits.MaxMessage = 220
	effects = p.Step(start, Connected{Relay: u, Epoch: 2, Limits: limits})
	assert.NotEmpty(t, only[Dropped](effects))
}

// An endless retry, and one at its bound. P19: each is lengthened by up to a tenth at
// random.
func TestPromiseP19_RetryAfter(t *testing.T) {
	p := newPlan(defaults())
	for failures, want := range map[int]time.Duration{1: 30 * time.Second, 4: 4 * time.Minute, 8: time.Hour, 1_000_000: time.Hour} {
		drawn := make(map[time.Duration]bool)
		for range 100 {
			d := p.retryAfter(failures)
			assert.GreaterOrEqual(t, d, want)
			assert.LessOrEqual(t, d, want+want/10)
			drawn[d] = true
		}
		assert.Greater(t, len(drawn), 50)
	}
}

func TestNames(t *testing.T) {
	assert.Equal(t, "disconnected connecting syncing live live with gaps",
		fmt.Sprint(Disconnected, Connecting, Syncing, Live, LiveWithGaps))
	p := newPlan(defaults())
	p.Step(start, full(repoRef("one"), urls(t, 1), 1, 2))
	p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef("two"), Level: LevelStateOnly}}})
	repos, roots := p.Repos()
	assert.Equal(t, []int{1, 2}, []int{repos, roots})
	_, ok := newPlan(defaults()).NextWake()
	assert.False(t, ok)
}

// hub is a want-state: repos with roots each, on 5 of the relays each.
func hub(repos, roots int, relays []graspsync.RelayURL) Snapshot {
	c := Snapshot{Repos: make([]RepoChange, 0, repos), Roots: make([]RootChange, 0, repos*roots)}
	for i := range repos {
		ref := repoRef(fmt.Sprint("repo", i))
		rc := RepoChange{Ref: ref, Level: LevelFull}
		for k := range 5 {
			rc.Relays = append(rc.Relays, relays[(i*7+k)%len(relays)])
		}
		c.Repos = append(c.Repos, rc)
		for k := range roots {
			c.Roots = append(c.Roots, RootChange{ID: rootID(i*roots + k), Repos: []graspsync.RepoRef{ref}})
		}
	}
	return c
}

// SPEC 11: 1,000 repositories with 50 root events on 100 relays in about 10 MB. The
// filters of standing subscriptions are those that their connections have.
func TestMemory(t *testing.T) {
	relays := urls(t, 100)
	in := hub(1000, 50, relays)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	c := defaults()
	c.MaxDials = 100
	p := newPlan(c)
	p.Step(start, in)
	wanted := heap()
	batches := 0
	var open []OpenLive
	for len(p.dialer.connected) < len(relays) { // five at a time, since all are of one owner
		for _, u := range relays {
			if p.known.relays[u].dial.connecting {
				effects := connect(t, p, start, u)
				open = append(open, only[OpenLive](effects)...)
				batches += settle(p, start, u, effects)
			}
		}
	}
	after := heap()
	runtime.KeepAlive(p)
	p = nil //nolint:wastedassign // it may go
	used := float64(after-heap()) / (1 << 20)
	runtime.KeepAlive(open)
	t.Logf("wanted: %.1f MiB, confirmed: %.1f MiB, %d batches", float64(wanted-before)/(1<<20), used, batches)
	assert.Less(t, used, 16.0)
	assert.Less(t, float64(wanted-before)/(1<<20), 16.0)
	runtime.KeepAlive(in)
}
