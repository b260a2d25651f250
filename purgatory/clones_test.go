package purgatory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/purgatory"
)

// Of each announcement and each pull request the first clone URLs are hunted, the rest
// is counted, however the event came.
func TestMaxClones(t *testing.T) {
	named := func(who string) (servers []string) {
		for i := range 5 {
			servers = append(servers, fmt.Sprintf("%s%d.example/r.git", who, i))
		}
		return servers
	}
	run(t, purgatory.Config{MaxClones: 2}, func(t *testing.T, w *world) {
		served := announce(alice, now()-500, named("served")...)
		w.relay.put(served)
		w.p.Arrived(served)
		wait(time.Second)
		require.Equal(t, uint64(3), w.p.Status().Dropped["clones"])
		w.held(says(alice, now(), "main", 1))
		pr := pull(carol, repoOf(alice), 9, filters.KindPullRequest)
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
			asked = append(asked, c.URL.Authority.Host)
		}
		slices.Sort(asked)
		require.Equal(t, []string{
			"pull0.example", "pull1.example", "served0.example", "served1.example", "waiting0.example", "waiting1.example",
		}, slices.Compact(asked))
	})
}
