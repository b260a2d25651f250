package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
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
		for _, f := range l.Filters.Spell() {
			size += filters.Size(f)
		}
		request, err := json.Marshal(l.Filters.Spell())
		require.NoError(t, err)
		assert.LessOrEqual(t, len(request)+len(`["REQ","",`)+64, 128<<10)
		assert.LessOrEqual(t, len(l.Filters), 20)
		bytes += size
		for key := range keysOf(l.Filters.Spell()...) {
			values[key] = true
		}
	}
	st := p.Status()[0]
	t.Logf("%d subscriptions, %d filters, %d bytes", st.LiveSubs, st.LiveFilters, bytes)
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
	lives := only[OpenLive](effects)
	settle(p, start, u, effects)

	now := start.Add(time.Second)
	for _, l := range lives[5:] {
		p.Step(now, LiveClosed{Relay: u, Epoch: 1, Live: l.Live, Why: wire.RefusalTooManySubs})
	}
	now = now.Add(time.Minute)
	effects = p.Step(now, Tick{})
	lives = only[OpenLive](effects)
	require.Len(t, lives, 4, "one of five is left to history")
	st := p.Status()[0]
	assert.Equal(t, LiveKinds, st.LiveMethod)
	assert.Greater(t, st.LiveFilters, 65)
	assert.Greater(t, st.Unfollowed, 150)
	assert.Equal(t, "kinds(20) layer1", showFilters(lives[0].Filters[:2].Spell()))
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
	for _, g := range p.relays.byURL[u].live.poll.groups {
		for key := range keysOf(p.repos.itemFilters(g.items)...) {
			require.True(t, polled[key], key)
		}
	}
	assert.Greater(t, len(polled), 10_000)
}

// A maximum number of subscriptions, or a refusal of the filter of kinds, was believed forever. Now
// it expires after a day on the same connection and is tested again.
func TestExperienceIsBelievedForADay(t *testing.T) {
	c := defaults()
	c.MaxBatches = 1000
	p, u := newPlan(c), relayURL(t, "hub")
	p.Step(start, realHub(u))
	limits := relaylimits.Requests{MaxMessage: 128 << 10, MaxFilters: 20, MaxSubscriptions: 20}
	effects := p.Step(start, Connected{Relay: u, Epoch: 1, Limits: limits})
	all := len(only[OpenLive](effects))
	settle(p, start, u, effects)
	now := start.Add(time.Second)
	for _, l := range only[OpenLive](effects)[5:] {
		p.Step(now, LiveClosed{Relay: u, Epoch: 1, Live: l.Live, Why: wire.RefusalTooManySubs})
	}
	now = now.Add(time.Minute)
	effects = p.Step(now, Tick{})
	settle(p, now, u, effects)
	p.Step(now, LiveClosed{Relay: u, Epoch: 1, Live: only[OpenLive](effects)[0].Live, Why: wire.RefusalBadRequest})
	at := func(t time.Time) RelayStatus {
		for wake, ok := p.NextWake(); ok && !wake.After(t); wake, ok = p.NextWake() {
			settle(p, wake, u, p.Step(wake, Tick{}))
		}
		return p.Status()[0]
	}
	st := at(start.Add(relaylimits.Believed))
	assert.Equal(t, LivePolling, st.LiveMethod)
	assert.Equal(t, 4, st.LiveSubs)
	st = at(start.Add(relaylimits.Believed + 5*time.Minute))
	assert.Equal(t, LiveAll, st.LiveMethod)
	assert.Equal(t, all, st.LiveSubs)
	assert.Zero(t, st.Unfollowed)

	// A repeated refusal is believed for another day.
	for _, l := range slices.Sorted(maps.Keys(p.relays.byURL[u].live.subs))[5:] {
		p.Step(p.now, LiveClosed{Relay: u, Epoch: 1, Live: l, Why: wire.RefusalTooManySubs})
	}
	st = at(p.now.Add(20 * time.Hour))
	assert.Equal(t, LiveKinds, st.LiveMethod)
	assert.Equal(t, 4, st.LiveSubs)
}

// A relay with the minimum of subscriptions is subscribed to announcements.
func TestLayer1ComesFirst(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2))
	effects := p.Step(start, Connected{Relay: u, Epoch: 1, Limits: relaylimits.Requests{MaxMessage: 4096, MaxFilters: 1, MaxSubscriptions: 2}})
	lives := only[OpenLive](effects)
	require.Len(t, lives, 1)
	assert.Equal(t, "layer1", showFilters(lives[0].Filters.Spell()))
}

// All items of the last polled group became unwanted, and a new item was added. The plan panicked
// on the empty group.
func TestPollOfWhatIsLeft(t *testing.T) {
	c := defaults()
	c.PollFilters = 1000
	p, u, now := newPlan(c), relayURL(t, "a"), start
	p.Step(now, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2))
	limits := relaylimits.Requests{MaxMessage: 4096, MaxFilters: 1, MaxSubscriptions: 2}
	settle(p, now, u, p.Step(now, Connected{Relay: u, Epoch: 1, Limits: limits}))
	polled := func() map[string]bool {
		keys := make(map[string]bool)
		for _, g := range p.relays.byURL[u].live.poll.groups {
			maps.Copy(keys, keysOf(p.repos.itemFilters(g.items)...))
		}
		return keys
	}
	key := func(n int) string { return "e " + rootID(n).String() }
	require.True(t, polled()[key(1)])
	p.Step(now, Changes{Roots: []RootChange{{ID: rootID(1)}, {ID: rootID(2)}}})
	for range 3 {
		now = now.Add(c.PollEvery)
		settle(p, now, u, p.Step(now, Tick{}))
	}
	require.False(t, polled()[key(1)])
	oldest := p.relays.byURL[u].live.poll.oldest()
	require.False(t, oldest.Before(now.Add(-2*c.PollEvery)), "or no mark would move: %v ago", now.Sub(oldest))
	settle(p, now, u, p.Step(now, full(repoRef("one"), []graspsync.RelayURL{u}, 3)))
	assert.True(t, polled()[key(3)])
}

// A name that exceeds a relay's message size is never requested. An audit of only that item started
// a batch without requests, which never ended.
func TestNothingToAudit(t *testing.T) {
	p, u, now := newPlan(defaults()), relayURL(t, "a"), start
	p.Step(now, full(repoRef(strings.Repeat("x", 40_000)), []graspsync.RelayURL{u}))
	effects := p.Step(now, Connected{Relay: u, Epoch: 1, Limits: usual})
	audits := 0
	for range 60 {
		for queue := only[Start](effects); len(queue) > 0; queue = queue[1:] {
			b := queue[0].Batch
			require.NotEmpty(t, b.Queries, "%v", b.Kind)
			if b.Kind == Audit {
				audits++
			}
			queue = append(queue, only[Start](p.Step(now, Done{Relay: u, Epoch: 1, Batch: b.ID, Reconciled: true}))...)
		}
		now = now.Add(25 * time.Hour)
		effects = p.Step(now, Tick{})
	}
	assert.Greater(t, audits, 10)
	assert.Less(t, audits, 50, "the other half had nothing to ask for")
}

// P37: with nine of ten relays dead, an honest relay that returns is dialed after one turn of all
// waiting owners.
func TestPromiseP37_DeadRelays(t *testing.T) {
	p, all := newPlan(defaults()), urls(t, 500)
	for i, u := range all {
		p.Step(start, full(ownedBy(i, "repo"), []graspsync.RelayURL{u}))
	}
	honest, now := all[:50], start
	dead := func(u graspsync.RelayURL) bool { return !slices.Contains(honest, u) }
	most := 0
	second := func() { // failing dials take ten seconds
		now = now.Add(time.Second)
		p.Step(now, Tick{})
		for _, u := range all {
			switch r := p.relays.byURL[u]; {
			case r.dial.connecting && !dead(u):
				settle(p, now, u, connect(t, p, now, u))
			case r.dial.connecting && now.Unix()%10 == 0:
				p.Step(now, DialFailed{Relay: u, Epoch: r.dial.epoch, RetryAt: now.Add(20 * time.Second)})
			}
		}
		require.LessOrEqual(t, p.dialer.young.all, 10)
		most = max(most, p.dialer.dialing)
	}
	for range 1000 {
		second()
	}
	require.LessOrEqual(t, most, 90)
	for _, u := range honest {
		require.True(t, p.relays.byURL[u].dial.connected)
	}
	for _, u := range honest[:5] {
		r := p.relays.byURL[u]
		p.Step(now, Lost{Relay: u, Epoch: r.dial.epoch, AliveAt: now, RetryAt: now})
		lost := now
		for !r.dial.connected {
			second()
		}
		require.LessOrEqual(t, now.Sub(lost), 60*time.Second, "450 others at 9 in a second")
	}
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
			if r := p.relays.byURL[u]; r.dial.connecting {
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
		require.LessOrEqual(t, len(p.dialer.connected), 8)
	}
	assert.Len(t, met, 20)
	assert.True(t, p.relays.byURL[good].dial.connected)
}

// Up to PollFilters filters are polled. With more, kinds are followed.
func TestKindsBeyondPollFilters(t *testing.T) {
	p := newPlan(defaults())
	r := &relayState{}
	assert.False(t, p.live.prefersKinds(r, p.cfg.PollFilters))
	assert.True(t, p.live.prefersKinds(r, p.cfg.PollFilters+1))
	r.live.unfollowed = p.cfg.PollFilters - 3
	assert.False(t, p.live.turnsToKinds(r, 3))
	assert.True(t, p.live.turnsToKinds(r, 4))
}

// Items added while a relay is polled join the last group, up to the maximum number of values in a
// filter.
func TestPolledTogether(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	c := full(repoRef("r"), []graspsync.RelayURL{u})
	const n, first = 2*filters.MaxValues + 50, filters.MaxValues - 40
	for i := range n {
		c.Roots = append(c.Roots, RootChange{ID: rootID(i), Repos: []graspsync.RepoRef{repoRef("r")}})
	}
	p.Step(start, c)
	r := p.relays.byURL[u]
	var items []Item
	for i := range n {
		items = append(items, p.repos.item(rootID(i)))
	}
	p.polling.begin(r, items[:first], start)
	for at := first; at < n; at += 30 {
		p.polling.add(r, items[at:min(at+30, n)], start)
	}
	var polled []Item
	for _, g := range r.live.poll.groups {
		require.LessOrEqual(t, len(g.items), filters.MaxValues)
		polled = append(polled, g.items...)
	}
	require.ElementsMatch(t, items, polled)
	require.Len(t, r.live.poll.groups, 3)
}
