package purgatory_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// askedFor says of each fetch whether it was for an object.
func askedFor(w *world, n int) (out []bool) {
	for _, c := range w.git.Calls() {
		out = append(out, slices.Contains(c.Want, object(n)))
	}
	return out
}

// A stream of pull requests keeps nobody from fetching what a state needs, and does not
// have a server asked again for what it is known to lack; nor does a state that nobody
// has keep pull requests waiting.
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

// What pull requests have used up of a day keeps nobody from asking for a state's
// objects, nor does that they were too much for a server's limit.
func TestPromiseP17_PullRequestsUseUpTheirOwn(t *testing.T) {
	for name, server := range map[string]fetchtest.Server{
		"bytes": {Junk: true, Bytes: 300}, "limit": {Err: fmt.Errorf("%w: bytes", purgatory.ErrLimit), Bytes: 10},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{Limits: purgatory.Limits{MaxRepoDay: 1000, MaxHostDay: 10_000}}, func(t *testing.T, w *world) {
				w.relay.put(announce(alice, now()-500, "a.example/r.git"))
				w.git.Serve(clone("a.example/r.git"), server)
				for i := range 6 {
					w.held(pull(bob, repoOf(alice), 2000+i, graspsync.KindPullRequest))
					wait(time.Minute)
				}
				require.LessOrEqual(t, len(w.git.Calls()), 2)
				w.git.Serve(clone("a.example/r.git"), fetchtest.Server{})
				s := says(alice, now(), "main", 1)
				w.held(s)
				wait(time.Minute)
				require.True(t, slices.Contains(askedFor(w, 1), true))
				w.git.Serve(clone("a.example/r.git"), serving(1))
				wait(12 * time.Minute)
				require.True(t, w.relay.has(s))
			})
		})
	}
}
