package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
)

// A repository waited for sixteen servers that take as long as they may, one after the
// other, before it found the good one.
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

// A forge that answers 429 was asked on at 30 requests a minute, for other repositories;
// it is left alone for as long as it asks, but for no longer than a day, and over a restart.
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

// What is gathered for repositories that don't become complete was bounded by their number:
// one key with a hundred of them held as many times the bytes of a day.
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
		require.Positive(t, w.p.Status().Dropped["gathered"])
	})
}

// A repository that is beyond what one fetch may bring is got in parts, and what has come
// stays; it never came before. One that is beyond it with a single object is not asked for
// before the next day.
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
