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
	"github.com/graspsync/graspsync/sync/relaytest"
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

// The daily bytes and size limits that pull requests use up do not prevent requests for a state's
// objects.
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

// The same holds after a restart, for held events.
func TestOneServerHasBothAfterARestart(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{})
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		s, pr := says(alice, now(), "main", 1), pull(carol, repoOf(alice), 1000, graspsync.KindPullRequest)
		w.held(s)
		w.held(pr)
		wait(2 * time.Second)
		require.Len(t, w.git.Calls(), 2, "each once")
		w.stop()
		w.git.Serve(clone("a.example/r.git"), serving(1, 1000))
		w.start()
		wait(25 * time.Second)
		require.True(t, w.relay.has(s))
		require.True(t, w.relay.has(pr))
		require.Len(t, w.git.Calls(), 4)
	})
}

// A server that lacks all objects is not asked again immediately. Many authors of pull requests
// cause only a few requests in one attempt.
func TestAskedForMoreAFewTimesOnly(t *testing.T) {
	t.Run("lacking", func(t *testing.T) {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Delay: 30 * time.Second})
			w.relay.put(announce(alice, now()-500, "a.example/r.git"))
			w.held(says(alice, now(), "main", 1))
			w.held(pull(carol, repoOf(alice), 1000, graspsync.KindPullRequest))
			wait(75 * time.Second)
			require.Equal(t, []bool{true, false}, askedFor(w, 1), "each once, though it takes its time")
			wait(10 * time.Minute)
			states := 0
			for _, yes := range askedFor(w, 1) {
				if yes {
					states++
				}
			}
			require.LessOrEqual(t, len(w.git.Calls()), 9, "later attempts are of one request")
			require.Greater(t, states, 2)
		})
	})
	t.Run("authors", func(t *testing.T) {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			var tips []int
			for i := range 40 {
				tips = append(tips, 1000+i)
				w.git.Needs(object(1000+i), object(5000)) // which no server has
			}
			w.git.Serve(clone("a.example/r.git"), serving(append(tips, 1)...))
			w.relay.put(announce(alice, now()-500, "a.example/r.git"))
			s := says(alice, now(), "main", 1)
			w.held(s)
			for i := range 40 {
				w.held(pull(relaytest.NewKey(fmt.Sprint("author", i)), repoOf(alice), 1000+i, graspsync.KindPullRequest))
			}
			wait(15 * time.Second)
			require.True(t, w.relay.has(s))
			require.Len(t, w.git.Calls(), 4)
		})
	})
}
