package plan

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// realHub returns a relay of the size of relay.ngit.dev: 2,530 repositories and 6,407 root events.
func realHub(u graspsync.RelayURL) Snapshot {
	var c Snapshot
	for i := range 2530 {
		ref := graspsync.RepoRef{Owner: pubKey(i % 743), Identifier: fmt.Sprintf("repo-%d", i)}
		c.Repos = append(c.Repos, RepoChange{Ref: ref, Relays: []graspsync.RelayURL{u}, Level: LevelFull})
	}
	for i := range 6407 {
		c.Roots = append(c.Roots, RootChange{ID: rootID(i), Repos: []graspsync.RepoRef{c.Repos[i%2530].Ref}, CreatedAt: nostr.Timestamp(i)})
	}
	return c
}

// 18 subscriptions follow a whole hub on a relay that accepts 20, with 20 filters and 128 KiB each.
func TestPromiseP28_HubFits(t *testing.T) {
	c := defaults()
	c.MaxBatches = 1000
	p, u := newPlan(c), relayURL(t, "hub")
	p.Step(start, realHub(u))
	limits := relaylimits.Requests{MaxMessage: 128 << 10, MaxFilters: 20, MaxSubscriptions: 20}
	effects := p.Step(start, Connected{Relay: u, Epoch: 1, Limits: limits})
	lives := only[OpenLive](effects)
	bytes, values := 0, make(map[string]bool)
	for _, l := range lives {
		size := 0
		for _, f := range l.Filters {
			size += filters.Size(f)
		}
		request, err := json.Marshal(l.Filters)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(request)+len(`["REQ","",`)+64, 128<<10)
		assert.LessOrEqual(t, len(l.Filters), 20)
		bytes += size
		for key := range keysOf(l.Filters...) {
			values[key] = true
		}
	}
	st := p.Status()[0]
	assert.LessOrEqual(t, len(lives), 18)
	assert.Greater(t, bytes, 1_500_000)
	assert.Zero(t, st.Unfollowed)
	assert.Equal(t, LiveAll, st.LiveMethod)
	assert.Len(t, values, len(keysOf(filters.Layer1()))+5*2530+3*6407)
}

// On a relay that accepts five subscriptions the rest of the hub is followed by kinds. If the relay
// refuses that filter, the rest is polled, each group within ten minutes.
func TestPromiseP28_HubThatTakesFew(t *testing.T) {
	c := defaults()
	c.MaxBatches = 1000
	p, u := newPlan(c), relayURL(t, "hub")
	hub := realHub(u)
	p.Step(start, hub)
	limits := relaylimits.Requests{MaxMessage: 128 << 10, MaxFilters: 20, MaxSubscriptions: 20}
	effects := p.Step(start, Connected{Relay: u, Epoch: 1, Limits: limits})
	settle(p, start, u, effects)

	now := start.Add(time.Second)
	limits.MaxSubscriptions = 6
	effects = p.Step(now, LimitsChanged{Relay: u, Epoch: 1, Limits: limits})
	lives := only[OpenLive](effects)
	require.Len(t, lives, 4)
	st := p.Status()[0]
	assert.Equal(t, LiveKinds, st.LiveMethod)
	assert.Greater(t, st.LiveFilters, 65)
	assert.Greater(t, st.Unfollowed, 150)
	assert.Equal(t, "kinds(20) layer1", showFilters(lives[0].Filters[:2]))
	settle(p, now, u, effects)

	// Later items are followed too, without a new subscription.
	effects = p.Step(now, Changes{Roots: []RootChange{{ID: rootID(9_000_000), Repos: []graspsync.RepoRef{hub.Repos[0].Ref}}}})
	assert.Empty(t, only[OpenLive](effects))
	assert.Equal(t, 1, settle(p, now, u, effects))

	p.Step(now, LiveClosed{Relay: u, Epoch: 1, Live: lives[0].Live, Why: wire.RefusalBadRequest})
	now = now.Add(2 * time.Minute)
	settle(p, now, u, p.Step(now, Tick{}))
	st = p.Status()[0]
	assert.Equal(t, LivePolling, st.LiveMethod)
	assert.Equal(t, Live, st.Phase)
	polled := make(map[string]bool)
	for end := now.Add(10 * time.Minute); ; {
		at, _ := p.NextWake()
		if at.After(end) {
			break
		}
		now = at
		effects = p.Step(now, Tick{})
		assert.Empty(t, only[OpenLive](effects))
		for _, s := range only[Start](effects) {
			assert.Equal(t, Recent, s.Batch.Kind)
			for _, q := range s.Batch.Queries {
				for key := range keysOf(q.Filter) {
					polled[key] = true
				}
			}
		}
		settle(p, now, u, effects)
	}
	for _, g := range p.relays[u].live.poll.groups {
		for key := range keysOf(p.repos.itemFilters(g.items)...) {
			require.True(t, polled[key], key)
		}
	}
	assert.Greater(t, len(polled), 10_000)
}

// P37: relays that accept a connection and never answer are eventually disconnected in favor of
// waiting relays.
func TestPromiseP37_SilentRelays(t *testing.T) {
	c := defaults()
	c.MaxDials, c.MaxConnections = 100, 8
	p, all := newPlan(c), urls(t, 20)
	for i, u := range all {
		p.Step(start, full(ownedBy(i, "repo"), []graspsync.RelayURL{u}))
	}
	good := all[19]
	now, met := start, make(map[graspsync.RelayURL]bool)
	connectAll := func() {
		for _, u := range all {
			if r := p.relays[u]; r.dial.connecting {
				connect(t, p, now, u)
				met[u] = true
			}
		}
	}
	connectAll()
	p.Step(start, Bootstrap{Relay: good})
	for range 5 * 60 {
		now = now.Add(time.Minute)
		p.Step(now, Tick{})
		connectAll()
		require.LessOrEqual(t, len(p.connected), 8)
	}
	assert.Len(t, met, 20)
	assert.True(t, p.relays[good].dial.connected)
}
