package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// The status of all repositories adds up to that of all relays.
func TestRepoStatusAddsUp(t *testing.T) {
	for _, narrow := range []bool{false, true} {
		t.Run(fmt.Sprint("narrow=", narrow), func(t *testing.T) { repoStatusAddsUp(t, narrow) })
	}
}

func repoStatusAddsUp(t *testing.T, narrow bool) {
	c, states := defaults(), 0
	if c.NarrowLayer1 = narrow; narrow {
		states = 1
	}
	p, now := newPlan(c), start
	relays := urls(t, 4)
	for i := range 6 {
		p.Step(now, full(repoRef(fmt.Sprint(i)), relays[i%3:i%3+2], 10*i, 10*i+1, 10*i+2))
	}
	p.Step(now, Changes{Repos: []RepoChange{{Ref: repoRef("held"), Relays: relays[:1], Level: LevelStateOnly}}})
	var started []Start
	for _, u := range relays[:2] {
		started = append(started, only[Start](connect(t, p, now, u))...)
	}
	for _, b := range started[:4] { // all of the first relay's first batches
		p.Step(now, Done{Relay: b.Relay, Epoch: b.Epoch, Batch: b.Batch.ID})
	}

	var wanted, flying, confirmed int
	refs := p.Refs()
	require.Len(t, refs, 7)
	for _, ref := range refs {
		s, ok := p.RepoStatus(ref)
		require.True(t, ok)
		wanted += s.Wanted
		flying += s.InFlight
		confirmed += s.Confirmed
		if ref == repoRef("held") {
			require.Equal(t, LevelStateOnly, s.Level)
			require.Equal(t, states, s.Wanted)
			require.Len(t, s.Relays, 1)
			continue
		}
		require.Equal(t, 3, s.Roots)
		require.Equal(t, 8+2*states, s.Wanted, "the repository and three roots, and its states apart from layer 1, of two relays")
		for _, r := range s.Relays {
			require.Equal(t, r.Phase >= Syncing, r.Live)
		}
	}
	for _, r := range p.Status() {
		wanted -= r.Wanted - 1 // layer 1 belongs to no repository
		confirmed -= r.Confirmed
		flying -= r.InFlight
	}
	require.Zero(t, wanted)
	require.Equal(t, -len(relays[:2]), confirmed+flying, "layer 1 of two relays")

	_, ok := p.RepoStatus(repoRef("none"))
	require.False(t, ok)
	p.Step(now, Changes{Repos: []RepoChange{{Ref: repoRef("0")}}})
	_, ok = p.RepoStatus(repoRef("0"))
	require.False(t, ok, "its roots are known, but it is not wanted")
	require.Len(t, p.Refs(), 6)
}

// What is wanted anew is not live before it is followed.
func TestRepoStatusLive(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
	live := func() bool {
		s, ok := p.RepoStatus(repoRef("one"))
		require.True(t, ok)
		return s.Relays[0].Live
	}
	require.False(t, live())
	epoch := only[Start](connect(t, p, start, u))[0].Epoch
	require.True(t, live())
	p.Step(start, RateLimited{Relay: u, Epoch: epoch, Until: start.Add(time.Minute)})
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 2))
	require.False(t, live())
	p.Step(start.Add(time.Minute), Tick{})
	require.True(t, live())
}

// What a relay has ceased to follow is not live before it is followed again.
func TestRepoStatusOfAClosedSubscription(t *testing.T) {
	p, u := newPlan(defaults()), relayURL(t, "a")
	p.Step(start, full(repoRef("one"), []graspsync.RelayURL{u}, 1))
	p.Step(start, full(repoRef("two"), []graspsync.RelayURL{u}, 2))
	live := func(repo string) bool {
		s, ok := p.RepoStatus(repoRef(repo))
		require.True(t, ok)
		return s.Relays[0].Live
	}
	effects := connect(t, p, start, u)
	epoch := only[Start](effects)[0].Epoch
	opened := only[OpenLive](p.Step(start, full(repoRef("three"), []graspsync.RelayURL{u}, 3)))
	require.Len(t, opened, 1)
	p.Step(start, LiveClosed{Relay: u, Epoch: epoch, Live: opened[0].Live, Why: wire.RefusalOther})
	require.False(t, live("three"))
	require.True(t, live("one"))
	later, _ := p.NextWake()
	require.Len(t, only[OpenLive](p.Step(later, Tick{})), 1)
	require.True(t, live("three"))
}
