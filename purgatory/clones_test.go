package purgatory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Only the first MaxClones clone URLs of an announcement or pull request are used. The rest is
// counted, for events of clients and of sync.
func TestMaxClones(t *testing.T) {
	named := func(who string) (servers []string) {
		for i := range 5 {
			servers = append(servers, fmt.Sprintf("%s%d.example/r.git", who, i))
		}
		return servers
	}
	run(t, purgatory.Config{}.With(purgatory.Fixed{MaxClones: 2}), func(t *testing.T, w *world) {
		served := announce(alice, now()-500, named("served")...)
		w.relay.put(served)
		w.p.NotifyStored(eventtest.Of(served))
		wait(time.Second)
		require.Equal(t, uint64(3), w.p.Status().Dropped["clones"])
		w.held(says(alice, now(), "main", 1))
		pr := pull(carol, repoOf(alice), 9, graspsync.KindPullRequest)
		for _, s := range named("pull") {
			pr.Tags = append(pr.Tags, nostrTag{"clone", "https://" + s})
		}
		carol.Sign(pr)
		w.held(pr)
		require.Equal(t, uint64(6), w.p.Status().Dropped["clones"])
		w.held(pr)
		require.Equal(t, uint64(6), w.p.Status().Dropped["clones"], "once")
		w.held(announce(bob, now(), named("waiting")...))
		w.held(says(bob, now(), "main", 2))
		require.Equal(t, uint64(9), w.p.Status().Dropped["clones"])
		wait(10 * time.Minute)
		var asked []string
		for _, c := range w.git.Calls() {
			asked = append(asked, c.URL.HostPort().Host)
		}
		slices.Sort(asked)
		require.Equal(t, []string{
			"pull0.example", "pull1.example", "served0.example", "served1.example", "waiting0.example", "waiting1.example",
		}, slices.Compact(asked))
	})
}

// With a short Hold, the first fetch for a client's event starts before the event expires.
func TestWhatWaitsShortlyIsHuntedFor(t *testing.T) {
	run(t, purgatory.Config{Times: purgatory.Times{Hold: 2 * time.Minute}}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		require.Equal(t, purgatory.Held, w.submit(announce(bob, now(), "a.example/r.git"), true))
		state := says(bob, now(), "main", 1)
		require.Equal(t, purgatory.Held, w.submit(state, true))
		wait(time.Minute)
		require.True(t, w.relay.has(state))
	})
}

// With many maintainers who name servers, one attempt asks a bounded number of servers. The owner
// and authors of held states come first, the others in turn.
func TestClonesOfManyMaintainers(t *testing.T) {
	racetest.Amounts(t)
	run(t, purgatory.Config{Times: purgatory.Times{Hold: 480 * time.Hour}}.With(purgatory.Fixed{MaxClones: 2}), func(t *testing.T, w *world) {
		hers, list := announce(alice, now()-500, "alice0.example/r.git", "alice1.example/r.git"), nostrTag{"maintainers"}
		var last *relaytest.Key
		for i := range 20 {
			k := relaytest.NewCheapKey(fmt.Sprint("maintainer", i))
			list = append(list, k.Hex())
			his := announce(k, now()-500, fmt.Sprintf("m%d.example/r.git", i), fmt.Sprintf("n%d.example/r.git", i))
			his.Tags = append(his.Tags, nostrTag{"maintainers", alice.Hex()})
			k.Sign(his)
			w.relay.notListing = append(w.relay.notListing, his)
			last = k
		}
		hers.Tags = append(hers.Tags, list)
		alice.Sign(hers)
		w.relay.put(hers)
		w.held(says(last, now(), "main", 1))
		asked := func() (hosts []string) {
			for _, c := range w.git.Calls() {
				hosts = append(hosts, c.URL.HostPort().Host)
			}
			slices.Sort(hosts)
			return slices.Compact(hosts)
		}
		wait(30 * time.Minute)
		require.Len(t, asked(), 8)
		require.Contains(t, asked(), "alice0.example")
		require.Contains(t, asked(), "m19.example")
		require.Zero(t, w.p.Status().Dropped["clones"], "each of them is hunted in time")
		require.EqualValues(t, 42-8, w.p.Status().Dropped["clones_turns"], "once, however often it is looked at")
		wait(240 * time.Hour) // attempts get rarer
		first := 0
		for i := range 20 {
			if slices.Contains(asked(), fmt.Sprintf("m%d.example", i)) {
				first++
			}
		}
		require.Equal(t, 20, first, "each has had a turn")
	})
}
