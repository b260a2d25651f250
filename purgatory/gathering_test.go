package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Too much data for pull requests does not discard the data for states.
// Before, a stranger's server could cause that.
func TestTooMuchForPullRequestsLeavesAStateAndTheOthers(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxRepoDay: 10_000}, Times: purgatory.Times{Hold: 20 * time.Hour}}.With(purgatory.Fixed{MaxHold: 20 * time.Hour}), func(t *testing.T, w *world) {
		w.serveAlice()
		w.relay.put(announce(alice, now()-50, "first.example/r.git", "second.example/r.git"))
		half := func(u string, part, rest int, bytes int64) {
			w.git.Needs(object(part), object(rest))
			s := serving(part)
			s.Bytes = bytes
			w.git.Serve(clone(u), s)
		}
		half("first.example/r.git", 40, 41, 4000)
		w.git.Serve(clone("second.example/r.git"), serving())
		s := says(alice, now(), "main", 40)
		w.held(s)
		wait(20 * time.Second)
		w.git.Serve(clone("first.example/r.git"), serving()) // and no longer has it
		proposes := func(k *relaytest.Key, tip int, u string) *nostrEvent {
			ev := k.Event(now(), graspsync.KindPullRequest, "", nostrTag{"a", repoOf(alice).String()},
				nostrTag{"c", object(tip).String()}, nostrTag{"clone", "https://" + u}, nostrTag{"clone", "https://second-" + u})
			w.git.Serve(clone("second-"+u), serving())
			w.held(ev)
			return ev
		}
		half("dave.example/r.git", 50, 51, 300)
		proposes(dave, 50, "dave.example/r.git")
		wait(10 * time.Second)
		w.git.Serve(clone("dave.example/r.git"), serving()) // fetched again, so counted again
		wait(20 * time.Minute)
		require.Equal(t, 2, w.git.Quarantines(), "both have sent a part")
		half("carol.example/r.git", 60, 61, 701)
		proposes(carol, 60, "carol.example/r.git")
		wait(10 * time.Minute)
		w.git.Serve(clone("carol.example/r.git"), serving()) // otherwise it uses up the bytes of the day
		require.Positive(t, w.p.Status().Dropped["partial_fetch"])
		w.git.Serve(clone("second.example/r.git"), serving(41))
		w.git.Serve(clone("second-dave.example/r.git"), serving(51))
		wait(time.Hour)
		require.True(t, w.relay.has(s), "what came for the state is still there")
	})
}

// Data of incomplete repositories is bounded by bytes. Before, only the number of repositories was,
// and one key could hold a hundred times the bytes of a day.
func TestWhatIsGatheredIsBounded(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxRepoDay: 1000}, Times: purgatory.Times{Hold: 20 * time.Hour}}.With(purgatory.Fixed{MaxHold: 20 * time.Hour}), func(t *testing.T, w *world) {
		for i := range 40 {
			k := alice
			if i >= 20 {
				k = bob
			}
			name := fmt.Sprintf("r%d", i)
			u := "half.example/" + name + ".git"
			half := serving(1000 + i)
			half.Bytes = 100
			w.git.Needs(object(1000+i), object(5000+i))
			w.git.Serve(clone(u), half)
			w.relay.put(k.Event(now()-500, 30617, "", nostrTag{"d", name}, nostrTag{"clone", "https://" + u}))
			w.held(k.Event(now(), 30618, "", nostrTag{"d", name}, nostrTag{"refs/heads/main", object(1000 + i).String()}))
		}
		wait(10 * time.Minute)
		require.LessOrEqual(t, w.p.Sizes()["places"], 2*1000/2/100)
		require.Positive(t, w.p.Status().Dropped["partial_fetch"])
	})
}

// A repository beyond the limit of one fetch is fetched in parts, which are kept. If a single
// object exceeds the limit, it is requested again the next day.
func TestALargeRepositoryComesInParts(t *testing.T) {
	for most, comes := range map[int]bool{3: true, 1: true, 0: false} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				large := serving(1, 2, 3, 4, 5, 6, 7, 8, 9)
				if large.Most = most; most == 0 {
					large.Err = purgatory.ErrLimit
				}
				w.git.Serve(clone("large.example/r.git"), large)
				w.relay.put(announce(alice, now()-500, "large.example/r.git"))
				s := says(alice, now(), "main", 1, "b", 2, "c", 3, "d", 4, "e", 5, "f", 6, "g", 7, "h", 8, "i", 9)
				w.held(s)
				wait(29 * time.Minute)
				require.Equal(t, comes, w.relay.has(s))
				require.LessOrEqual(t, len(w.git.Calls()), 4+9)
			})
		})
	}
}
