package plan

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// History uses half of a relay's subscriptions, at most eight. Live subscriptions leave two slots
// to history if there are enough.
func TestPlacesOfARelay(t *testing.T) {
	for _, c := range []struct{ most, live, historic int }{
		{0, 1, 1}, {1, 1, 1}, {2, 1, 1}, {3, 2, 1}, {4, 2, 2}, {5, 3, 2}, {6, 4, 3}, {15, 13, 7}, {16, 14, 8}, {18, 16, 8}, {100, 98, 8},
	} {
		l := relaylimits.Requests{MaxSubscriptions: c.most}
		require.Equal(t, c.live, l.LiveSubscriptions(), c)
		require.Equal(t, c.historic, l.Historic(), c)
	}
}

// An iteration of Marks may end early.
func TestMarksEndWhenAsked(t *testing.T) {
	p, us := newPlan(defaults()), urls(t, 2)
	p.Step(start, full(repoRef("one"), us))
	for _, u := range us {
		settle(p, start, u, connect(t, p, start, u))
	}
	p.Step(start.Add(time.Minute), Settled{At: start.Add(time.Minute)})
	n := 0
	for range p.Marks() {
		n++
	}
	require.Equal(t, 2, n)
	for range p.Marks() {
		n++
		break
	}
	require.Equal(t, 3, n)
}

// A request uses all bytes that the relay accepts, with a subscription id of 64 bytes.
func TestRequestsAreFilled(t *testing.T) {
	values := make([]string, 100)
	for i := range values {
		values[i] = "x"
	}
	f := nostr.Filter{Tags: nostr.TagMap{"e": values}}
	for most := 200; most < 204; most++ {
		reqs := squeeze(measured([][]nostr.Filter{nil, {f}}), 1, relaylimits.Requests{MaxMessage: most, MaxFilters: 5})
		require.Len(t, reqs[0].filters, 1)
		size := len(`["REQ","",]`) + 64 + filters.Size(reqs[0].filters[0])
		require.Equal(t, requestSize(reqs[0].filters), reqs[0].size)
		require.True(t, size <= most && size > most-len(`"x",`), "%d of %d bytes", size, most)
	}
	// A filter with fewer than leastCut values is not cut off.
	for values, ok := range map[int]bool{9: false, 10: true} {
		_, _, cuts := cut(f, filters.Size(nostr.Filter{Tags: nostr.TagMap{"e": f.Tags["e"][:values]}}))
		require.Equal(t, ok, cuts, values)
	}
}

// If each new connection requires the end of another, an eighth of the connections may be attempts.
func TestAttemptsWhereThereIsNoRoom(t *testing.T) {
	c := defaults()
	c.MaxConnections = 16
	p, us := newPlan(c), urls(t, 40)
	for i, u := range us[:16] {
		p.Step(start, full(ownedBy(i, "repo"), []graspsync.RelayURL{u}))
		settle(p, start, u, connect(t, p, start, u))
	}
	for i, u := range us[16:] {
		p.Step(start, full(ownedBy(16+i, "repo"), []graspsync.RelayURL{u}))
	}
	require.Zero(t, p.dialer.dialing)
	effects := p.Step(start.Add(yieldAfter), Tick{})
	require.Len(t, only[Hangup](effects), 2)
	require.Len(t, only[Dial](effects), 2)
}

// Of ids that a relay invented, at most a thousand per hour are requested from other relays.
func TestUnservedIsBounded(t *testing.T) {
	p, us := newPlan(defaults()), urls(t, 2)
	p.Step(start, full(repoRef("one"), us))
	for _, u := range us {
		settle(p, start, u, connect(t, p, start, u))
	}
	ids := make([]graspsync.EventID, 1_001)
	for i := range ids {
		ids[i] = rootID(i)
	}
	dropped := func(at time.Duration, n int) int {
		all := 0
		for _, d := range only[Dropped](p.Step(start.Add(at), Unserved{Relay: us[0], IDs: ids[:n]})) {
			all += d.Count
		}
		return all
	}
	require.Zero(t, dropped(0, 999))
	require.Zero(t, dropped(0, 1))
	require.Equal(t, 1, dropped(unservedTime-1, 1))
	require.Equal(t, 1, dropped(unservedTime, 1_001))
}

// A failing part of the rotation is requested three times per pass.
func TestSweepsThatFail(t *testing.T) {
	c := defaults()
	c.MaxRoots = 1
	p, u := newPlan(c), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1, 2))
	now, asked := start, 0
	effects := connect(t, p, now, u)
	for range 100 {
		var next []Effect
		for _, b := range only[Start](effects) {
			in := Done{Relay: u, Epoch: b.Epoch, Batch: b.Batch.ID}
			if b.Batch.Kind == History && b.Batch.Items == 0 {
				asked++
				in.Result = Failed
			}
			next = append(next, p.Step(now, in)...)
		}
		if at, ok := p.NextWake(); len(next) == 0 && ok && at.Sub(start) < 20*time.Hour {
			now = at
			next = p.Step(now, Tick{})
		}
		effects = next
	}
	require.Equal(t, 3, asked)
}

// Subscriptions are checked for unwanted items when these exceed one filter and the wanted items.
// If a filter has no room, a quarter of the wanted items is enough.
func TestWhenIdleIsLookedFor(t *testing.T) {
	p, u := hubOf(t, 402)
	r := p.relays.byURL[u]
	require.Equal(t, 404, r.history.items.Len())
	for _, c := range []struct {
		idle, unfollowed int
		stale            bool
		left             int
	}{
		{100, 0, false, 100}, {404, 0, false, 404}, {405, 0, false, 0},
		{100, 1, false, 100}, {101, 1, false, 101}, {102, 1, true, 102}, {102, 0, false, 102},
	} {
		r.live.idle, r.live.unfollowed, r.live.stale = c.idle, c.unfollowed, false
		p.live.dropIdle(r, start)
		require.Equal(t, c.stale, r.live.stale, c)
		require.Equal(t, c.left, r.live.idle, c)
	}
	p, u = hubOf(t, 50)
	r = p.relays.byURL[u]
	for idle, left := range map[int]int{100: 100, 101: 0} {
		r.live.idle = idle
		p.live.dropIdle(r, start)
		require.Equal(t, left, r.live.idle)
	}
}
