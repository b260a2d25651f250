package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
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

// Refused items that are no longer wanted left the relay behind as polled forever, and its next
// refusal was not divided.
func TestRestEndsWithoutItems(t *testing.T) {
	p, u := hubOf(t, 0)
	r := p.relays[u]
	effects := p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
	for len(r.live.refusedItems) == 0 {
		settle(p, start, u, effects)
		lives := only[OpenLive](effects)
		effects = p.Step(start, LiveClosed{Relay: u, Epoch: 1, Live: lives[0].Live, Why: wire.RefusalRestricted})
	}
	settle(p, start, u, effects)
	require.Equal(t, LivePolling, p.Status()[0].LiveMethod)
	settle(p, start, u, p.Step(start, Changes{Roots: []RootChange{{ID: rootID(1)}}}))
	require.Empty(t, r.live.refusedItems)
	now := start.Add(27 * time.Hour)
	settle(p, now, u, p.Step(now, Tick{}))
	require.Equal(t, LiveAll, p.Status()[0].LiveMethod)
	require.Zero(t, p.Status()[0].Unfollowed)
}

// If a reply was removed and came back while its subscription was closed, another new reply was not
// followed.
func TestReplyComesBackWhileItsSubscriptionIsLost(t *testing.T) {
	p, u := hubOf(t, 1)
	reply := func(n int, repos ...graspsync.RepoRef) Changes {
		return Changes{Descendants: []DescendantChange{{Of: filters.Descendant{ID: rootID(n)}, Repos: repos}}}
	}
	effects := p.Step(start, reply(8, repoRef("one")))
	settle(p, start, u, effects)
	p.Step(start, LiveClosed{Relay: u, Epoch: 1, Live: only[OpenLive](effects)[0].Live, Why: wire.RefusalOther})
	p.Step(start, reply(8))
	p.Step(start, reply(8, repoRef("one")))
	p.Step(start, reply(9, repoRef("one")))
	r := p.relays[u]
	p.Step(r.live.retryAt, Tick{})
	require.Empty(t, r.live.missing)
	require.Empty(t, r.live.lost)
}
