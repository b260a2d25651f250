package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// hub announces n repositories of different owners on one server.
func (w *world) hub(n int, serves bool) {
	w.t.Helper()
	for i := range n {
		at, name := fmt.Sprintf("a.example/%d.git", i), fmt.Sprint("repo", i)
		if serves {
			w.git.Serve(clone(at), serving(i))
		}
		k := relaytest.NewCheapKey(fmt.Sprint("k", i))
		w.held(k.Event(now()-500, 30617, "", nostr.Tag{"d", name}, nostr.Tag{"clone", "https://" + at}))
		w.held(k.State(now(), name, map[string]string{"refs/heads/main": object(i).String()}, "main"))
	}
}

// A server with more repositories than it can be asked for during Hold serves all of them. Before,
// the rest expired without a request, and was refused for a week.
func TestHubOfManyRepositories(t *testing.T) {
	limit := purgatory.Limit{Concurrent: 1, PerMinute: 1}
	const n = 50
	for name, restart := range map[string]bool{"running": false, "with restarts": true} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{Limits: purgatory.Limits{DomainLimit: limit}, Times: purgatory.Times{Hold: 10 * time.Minute}}, func(t *testing.T, w *world) {
				w.hub(n, true)
				for range 8 {
					wait(8 * time.Minute)
					if restart {
						w.stop()
						w.start()
					}
				}
				require.Empty(t, w.p.Status().Waiting)
				released := 0
				for _, o := range w.seen {
					if e, ok := o.(purgatory.HoldEnded); ok {
						require.Equal(t, purgatory.Released, e.Reason)
						released++
					}
				}
				require.Equal(t, 2*n, released)
				require.Len(t, w.git.Calls(), n)
			})
		})
	}
	t.Run("no longer than MaxHold", func(t *testing.T) {
		run(t, purgatory.Config{Limits: purgatory.Limits{DomainLimit: limit}, Times: purgatory.Times{Hold: 10 * time.Minute}}.With(purgatory.Fixed{MaxHold: 25 * time.Minute}), func(t *testing.T, w *world) {
			w.hub(n, true)
			wait(24 * time.Minute)
			require.Zero(t, w.p.Status().Ended[purgatory.Expired])
			wait(2 * time.Minute)
			s := w.p.Status()
			require.Zero(t, s.States)
			require.InDelta(t, 2*25, s.Ended[purgatory.Released], 4)
			require.EqualValues(t, 2*n, s.Ended[purgatory.Released]+s.Ended[purgatory.Expired])
		})
	})
	t.Run("asked in vain", func(t *testing.T) {
		run(t, purgatory.Config{Times: purgatory.Times{Hold: 10 * time.Minute}}, func(t *testing.T, w *world) {
			w.hub(n, false)
			wait(11 * time.Minute)
			require.EqualValues(t, 2*n, w.p.Status().Ended[purgatory.Expired], "all had a turn")
		})
	})
}
