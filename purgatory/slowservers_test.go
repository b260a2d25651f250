package purgatory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Strangers whose servers are as slow as possible do not keep another owner's good server from
// being asked in time.
func TestSlowServersDoNotStarveOthers(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		for i := range 40 {
			d := nostrTag{"d", fmt.Sprintf("s%d", i)}
			urls := nostrTag{"clone"}
			for j := range 16 {
				at := fmt.Sprintf("slow%d.example/s%d.git", 16*i+j, i)
				w.git.Serve(clone(at), fetchtest.Server{Err: errors.New("too slow"), Delay: 10 * time.Minute})
				urls = append(urls, "https://"+at)
			}
			mallory := relaytest.NewCheapKey("mallory")
			w.held(mallory.Event(now(), graspsync.KindAnnouncement, "", d, urls))
			w.held(mallory.Event(now(), graspsync.KindState, "", d, nostrTag{"refs/heads/main", object(1000 + i).String()}))
		}
		wait(time.Minute) // all slots are used
		w.git.Serve(clone("good.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		w.held(announce(alice, now(), "good.example/r.git"))
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(12 * time.Minute)
		require.True(t, w.relay.has(s))
	})
}

// Sixty owners whose servers were slow for hours delay a new owner by at most two minutes.
func TestSlowStrangersGoBehind(t *testing.T) {
	run(t, purgatory.Config{Times: purgatory.Times{Hold: 24 * time.Hour}}, func(t *testing.T, w *world) {
		for i := range 60 {
			mallory := relaytest.NewCheapKey(fmt.Sprint("mallory", i))
			at := fmt.Sprintf("slow%d.example/r.git", i%30)
			w.git.Serve(clone(at), fetchtest.Server{Err: errors.New("too slow"), Delay: 10 * time.Minute})
			w.held(announce(mallory, now(), at))
			w.held(says(mallory, now(), "main", 1000+i))
		}
		wait(2 * time.Hour) // each had its turn
		w.git.Serve(clone("good.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		d := nostrTag{"d", "honest"}
		w.held(alice.Event(now(), graspsync.KindAnnouncement, "", d, nostrTag{"clone", "https://good.example/r.git"}))
		s := alice.Event(now(), graspsync.KindState, "", d, nostrTag{"refs/heads/main", object(1).String()})
		w.held(s)
		wait(2 * time.Minute) // a slow attempt is ended after a minute
		require.True(t, w.relay.has(s))
	})
}

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
		require.Zero(t, w.p.Sizes()["places"], "the slow one was not waited for")
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
