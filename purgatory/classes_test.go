package purgatory_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// askedFor reports for each fetch whether it requested object n.
func askedFor(w *world, n int) (out []bool) {
	for _, c := range w.git.Calls() {
		out = append(out, slices.Contains(c.Want, object(n)))
	}
	return out
}

// Many pull requests do not delay the fetch of a state's objects, and do not repeat requests for
// objects that a server lacks. A state whose objects no server has does not delay pull requests.
func TestPromiseP16_PullRequestsAreAskedForApart(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		w.git.Serve(clone("a.example/r.git"), serving(1000))
		s := says(alice, now(), "main", 1)
		w.held(s)
		good := pull(carol, repoOf(alice), 1000, graspsync.KindPullRequest)
		w.held(good)
		for i := range 30 {
			w.held(pull(bob, repoOf(alice), 2000+i, graspsync.KindPullRequest))
			wait(20 * time.Second)
		}
		require.True(t, w.relay.has(good))
		asked := askedFor(w, 1)
		require.True(t, asked[0], "the state's first")
		for _, c := range w.git.Calls() {
			require.False(t, slices.Contains(c.Want, object(1)) && len(c.Want) > 1, "never together")
		}
		states := 0
		for i, yes := range asked {
			if yes {
				states++
				require.False(t, i > 0 && asked[i-1], "every other time at most")
			}
		}
		require.GreaterOrEqual(t, states, 4)
		require.LessOrEqual(t, states, 7, "each new pull request is no reason to ask again")
		require.Greater(t, len(asked), 2*states, "nor is the state one to let them wait")
		w.git.Serve(clone("a.example/r.git"), serving(1, 1000))
		for i := range 36 {
			w.held(pull(bob, repoOf(alice), 3000+i, graspsync.KindPullRequest))
			wait(20 * time.Second)
		}
		require.True(t, w.relay.has(s))
	})
}

// If one server has the objects of a state and of a pull request, both are released in the first
// attempt. Before, the pull request waited for the next attempt.
func TestOneServerHasBoth(t *testing.T) {
	for name, servers := range map[string][]string{
		"alone": {"a.example/r.git"}, "after one that has neither": {"none.example/r.git", "a.example/r.git"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				w.git.Serve(clone("none.example/r.git"), fetchtest.Server{})
				w.git.Serve(clone("a.example/r.git"), serving(1, 1000))
				w.relay.put(announce(alice, now()-500, servers...))
				s, pr := says(alice, now(), "main", 1), pull(carol, repoOf(alice), 1000, graspsync.KindPullRequest)
				w.held(s)
				w.held(pr)
				wait(2 * time.Second)
				require.True(t, w.relay.has(s))
				require.True(t, w.relay.has(pr), "without a backoff")
				for _, c := range w.git.Calls() {
					require.Len(t, c.Want, 1, "never together")
				}
			})
		})
	}
}
