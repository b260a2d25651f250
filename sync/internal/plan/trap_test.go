package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// T2: a relay was disconnected as empty while its first batch was in flight.
func TestTrapT2_NotCutWhileInFlight(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}))
	connect(t, p, start, u)
	// the repository has nothing to ask for yet, but lists the relay
	effects := p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef("one"), Relays: []graspsync.RelayURL{u}, Level: LevelStateOnly}}})
	assert.Empty(t, only[Hangup](effects))
	assert.Empty(t, only[Forget](effects))
}

// D3: targets were never removed for relays that are no longer listed and deleted repositories.
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
	assert.Equal(t, 20, p.repos.roots.Len())
	assert.LessOrEqual(t, len(p.repos.infos), 1+20+2*20, "numbers of items are not used again")
	p.Step(start, Snapshot{})
	assert.Empty(t, p.repos.byRef)
	assert.Zero(t, p.repos.roots.Len())
	assert.Empty(t, p.relays.byURL)
	assert.False(t, p.dialer.anyWaits(), "forgotten relays wait to be dialed")
	assert.Empty(t, p.owners.of)
	assert.Zero(t, p.owners.table.Len())
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

// A filter of history exceeded the low message size of a relay.
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

// Retries are endless with a maximum wait. P19: each wait is extended by a random part of up to a
// tenth.
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

// hub returns a Snapshot of repositories with root events, each on 5 of the relays.
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
