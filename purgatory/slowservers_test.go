package purgatory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A repository with sixteen very slow servers and a good one is served soon. Before, it waited for
// all slow ones.
func TestOneSlowServerDoesNotHoldARepository(t *testing.T) {
	run(t, purgatory.Config{Times: purgatory.Times{Hold: 5 * time.Hour}}, func(t *testing.T, w *world) {
		slow := serving(1)
		slow.Delay = 10 * time.Minute
		w.git.Serve(clone("slow.example/r.git"), slow)
		w.git.Serve(clone("good.example/r.git"), serving(1))
		w.relay.put(announce(alice, now()-500, "slow.example/r.git", "good.example/r.git"))
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(31 * time.Second)
		require.True(t, w.relay.has(s), "half a minute, and no ten")
		wait(time.Second)
		st := w.p.Status()
		require.EqualValues(t, 2, st.Fetches)
		var ended time.Duration
		for _, c := range w.git.Calls() {
			if c.URL.HostPort().Host == "slow.example" {
				ended = time.Since(c.At)
			}
		}
		require.Less(t, ended, time.Minute)
		wait(time.Minute)
	})
}

// A server that replies 429 is not asked for as long as it requests, but at most a day, also after
// a restart. Before, it got 30 requests a minute for other repositories.
func TestAServerThatIsBusyIsLeftAlone(t *testing.T) {
	for _, c := range []struct{ asks, gets time.Duration }{
		{5 * time.Second, time.Minute}, {2 * time.Hour, 2 * time.Hour}, {1000 * time.Hour, 24 * time.Hour},
	} {
		t.Run(c.asks.String(), func(t *testing.T) {
			run(t, purgatory.Config{Times: purgatory.Times{
				Hold: 30 * time.Hour,
			}}.With(purgatory.Fixed{SyncDelay: time.Second}), func(t *testing.T, w *world) {
				w.state = state.NewMemory()
				w.stop()
				w.start()
				w.git.Serve(clone("forge.example/0.git"), fetchtest.Server{Err: fmt.Errorf("asking: %w", &purgatory.BusyError{After: c.asks})})
				w.git.Serve(clone("forge.example/1.git"), serving(2))
				w.relay.put(announce(alice, now()-500, "forge.example/0.git"), announce(bob, now()-500, "forge.example/1.git"))
				w.held(says(alice, now(), "main", 1))
				wait(2 * time.Second)
				require.EqualValues(t, 1, w.p.Status().Dropped["busy"])
				s := says(bob, now(), "main", 2)
				w.held(s)
				wait(c.gets - 10*time.Second)
				w.stop()
				w.start()
				require.Len(t, w.git.Calls(), 1)
				wait(3 * time.Minute)
				require.True(t, w.relay.has(s))
			})
		})
	}
}

// Servers that accept a request and send nothing delay other owners by 10 s each, not by 30 s.
func TestSilentServersYield(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		for i := range 40 {
			mallory := relaytest.NewCheapKey(fmt.Sprint("mallory", i))
			at := fmt.Sprintf("silent%d.example/r.git", i)
			w.git.Serve(clone(at), fetchtest.Server{Err: errors.New("too slow"), Delay: 30 * time.Second})
			w.held(announce(mallory, now(), at))
			w.held(says(mallory, now(), "main", 100_000+i))
		}
		wait(time.Second)
		w.git.Serve(clone("good.example/r.git"), serving(1))
		w.held(announce(alice, now(), "good.example/r.git"))
		state := says(alice, now(), "main", 1)
		w.held(state)
		wait(time.Minute)
		require.True(t, w.relay.has(state))
	})
}
