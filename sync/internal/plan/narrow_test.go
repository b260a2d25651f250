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
)

func narrowPlan() *Plan {
	c := defaults()
	c.HostedStatesOnly = true
	return newPlan(c)
}

// states returns the identifiers of the filters for states, by chunk.
func states(t *testing.T, fs []nostr.Filter) (chunks [][]string) {
	t.Helper()
	for _, f := range fs {
		if ids, ok := f.Tags["d"]; ok {
			assert.Equal(t, []int{graspsync.KindState}, f.Kinds)
			assert.Len(t, f.Tags, 1)
			chunks = append(chunks, ids)
		} else {
			assert.NotContains(t, f.Kinds, graspsync.KindState, "states of everybody")
		}
	}
	return chunks
}

// States are requested for a hundred identifiers per filter, live and historic. The states of one
// identifier are in one filter.
func TestNarrowChunks(t *testing.T) {
	p, u := narrowPlan(), relayURL(t, "a")
	var c Changes
	for i := range 250 {
		rc := RepoChange{Ref: repoRef(fmt.Sprintf("repo%03d", i/2)), Relays: []graspsync.RelayURL{u}, Level: LevelStateOnly}
		rc.Ref.Owner = graspsync.PubKey{byte(i % 2)}
		if i%5 == 0 {
			rc.Level = LevelFull
		}
		c.Repos = append(c.Repos, rc)
	}
	p.Step(start, c)
	effects := connect(t, p, start, u)
	var live, past []nostr.Filter
	for _, o := range only[OpenLive](effects) {
		live = append(live, o.Filters.Spell()...)
	}
	for queue := only[Start](effects); len(queue) > 0; queue = queue[1:] {
		for _, q := range queue[0].Batch.Queries {
			past = append(past, q.Filter)
		}
		queue = append(queue, only[Start](p.Step(start, Done{Relay: u, Epoch: 1, Batch: queue[0].Batch.ID}))...)
	}
	for _, chunks := range [][][]string{states(t, live), states(t, past)} {
		assert.Len(t, chunks, 3)
		var all []string
		for _, chunk := range chunks {
			assert.LessOrEqual(t, len(chunk), filters.MaxValues)
			all = append(all, chunk...)
		}
		require.True(t, slices.IsSorted(all))
		assert.Len(t, slices.Compact(all), 125)
		assert.Len(t, all, 125, "asked for twice")
	}
	assert.Equal(t, Live, p.Status()[0].Phase)
	assert.Equal(t, 1+250+50, p.Status()[0].Confirmed)
}

// A repository added to a large relay causes a request for its states only. The states of an
// identifier are wanted while one repository has it.
func TestNarrowChangeCostsItself(t *testing.T) {
	p, u := narrowPlan(), relayURL(t, "a")
	for i := range 500 {
		p.Step(start, full(repoRef(fmt.Sprint(i)), []graspsync.RelayURL{u}))
	}
	settle(p, start, u, connect(t, p, start, u))
	twin := RepoChange{Ref: graspsync.RepoRef{Owner: graspsync.PubKey{2}, Identifier: "7"}, Relays: []graspsync.RelayURL{u}, Level: LevelStateOnly}
	effects := p.Step(start, Changes{Repos: []RepoChange{twin}})
	require.Len(t, effects, 2)
	assert.Equal(t, [][]string{{"7"}}, states(t, only[OpenLive](effects)[0].Filters.Spell()))
	assert.Equal(t, "states(1)", showFilter(only[Start](effects)[0].Batch.Queries[0].Filter))
	settle(p, start, u, effects)
	effects = p.Step(start, Changes{Repos: []RepoChange{{Ref: repoRef("7")}}})
	assert.Empty(t, effects, "nothing is sent for what is not wanted any more")
	assert.True(t, p.repos.wantedValues(p.relays.byURL[u])("d", "7"))
	assert.Empty(t, p.Step(start, Changes{Repos: []RepoChange{{Ref: twin.Ref}}}))
	assert.False(t, p.repos.wantedValues(p.relays.byURL[u])("d", "7"))
	p.Step(start, Snapshot{})
	assert.Len(t, p.repos.free, len(p.repos.infos)-1, "numbers that stand for nothing")
}

// Identifiers may look like ids or addresses of other items. Those without a live subscription are
// still polled.
func TestNarrowPolling(t *testing.T) {
	p, u, now := narrowPlan(), relayURL(t, "a"), start
	p.cfg.PollFilters = 1000
	names := []string{rootID(1).String(), repoRef("one").String(), "one", "two"}
	for _, name := range names {
		p.Step(now, Changes{Repos: []RepoChange{{
			Ref: graspsync.RepoRef{Owner: graspsync.PubKey{3}, Identifier: name}, Relays: []graspsync.RelayURL{u}, Level: LevelStateOnly,
		}}})
	}
	p.Step(now, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
	effects := p.Step(now, Connected{Relay: u, Epoch: 1, Limits: relaylimits.Requests{MaxMessage: 4096, MaxFilters: 1, MaxSubscriptions: 2}})
	require.Equal(t, "announcements", showFilters(only[OpenLive](effects)[0].Filters.Spell()), "what matters most has the only place")
	settle(p, now, u, effects)
	require.Equal(t, LivePolling, p.Status()[0].LiveMethod)
	asked := make(map[string]bool)
	for range 20 {
		now = now.Add(time.Minute)
		effects := p.Step(now, Tick{})
		for _, s := range only[Start](effects) {
			for _, q := range s.Batch.Queries {
				for _, name := range slices.Concat(states(t, []nostr.Filter{q.Filter})...) {
					asked[name] = true
				}
			}
		}
		settle(p, now, u, effects)
	}
	for _, name := range names {
		assert.True(t, asked[name], name)
	}
	assert.Len(t, asked, len(names))
}
