package purgatory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// metrics returns the metrics by name and first label.
func (w *world) metrics() map[string]float64 {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(w.t, reg.Register(w.p.Collector("g")))
	families, err := reg.Gather()
	require.NoError(w.t, err)
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// If the inbox overflows while the engine is busy, no event is missed, because the engine surveys
// all held events. Overflows and panics are counted.
func TestNothingIsMissedThatHadNoRoom(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		w.git.Put(repoOf(alice))
		busy := make(chan struct{})
		began := make(chan struct{}, 1)
		w.observe = func(o purgatory.Observation) {
			if _, incomplete := o.(purgatory.AttemptEnded); incomplete {
				select {
				case began <- struct{}{}:
					<-busy
				default:
				}
			}
		}
		s := says(alice, now(), "main", 2)
		w.held(s)
		wait(time.Minute)
		require.Len(t, began, 1, "the engine is busy")
		other := dave.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", s.ID})
		for range 20_000 {
			w.p.NotifyStored(eventtest.Of(other))
		}
		w.git.Push(repoOf(alice), nil, object(2))
		w.p.Pushed(t.Context(), repoOf(alice), nil)
		require.False(t, w.relay.has(s))
		close(busy)
		wait(time.Second)
		require.True(t, w.relay.has(s))
		dropped := w.p.Status().Dropped["inbox"]
		require.Positive(t, dropped)
		require.EqualValues(t, dropped, w.metrics()["g_purgatory_dropped_total inbox"], "%v", w.metrics())
		w.observe = func(purgatory.Observation) { panic("observer") }
		w.held(says(alice, now()+1, "main", 9))
		wait(time.Second)
		require.Positive(t, w.p.Status().Panics["observer"])
		require.EqualValues(t, w.p.Status().Panics["observer"], w.metrics()["g_purgatory_panics_total observer"])
		w.observe = nil
	})
}

// At most MaxKept records of fetches are loaded from the disk. The others are counted and deleted.
func TestWhatIsKeptOfHuntingIsBounded(t *testing.T) {
	for most := 1; most <= 4; most++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, purgatory.Config{}.With(purgatory.Fixed{MaxKept: most}))
			soon := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
			for i := range 3 {
				for key, value := range map[string]string{
					fmt.Sprint("purgatory/server/", i): fmt.Sprintf(`{"server":"%d.example:443","last":%q,"failures":1,"broken_until":%q}`, i, soon, soon),
					fmt.Sprint("purgatory/hunted/", i): fmt.Sprintf(`{"repo":"30617:%s:%d","attempts":1,"next":%q}`, alice.PubKey(), i, soon),
				} {
					err := w.state.Put(t.Context(), state.Record{Key: key, Value: []byte(value)})
					require.NoError(t, err)
				}
			}
			w.start()
			st := w.p.Status()
			require.Zero(t, st.Unreadable)
			require.EqualValues(t, 2*max(0, 3-most), st.Dropped["kept"], most)
			require.Len(t, w.kept(), 2*min(3, most))
			w.stop()
		})
	}
}

// RemoveRepository fails during a fetch and while the disk fails. A repeated call succeeds.
func TestRemoveRepositoryInUse(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		slow := serving(2)
		slow.Delay = time.Minute
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		w.git.Serve(clone("a.example/r.git"), slow)
		w.git.Put(repoOf(alice), object(1))
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		w.held(says(alice, now(), "main", 2))
		wait(30 * time.Second)
		require.ErrorIs(t, w.p.RemoveRepository(t.Context(), repoOf(alice)), purgatory.ErrInUse)
		require.True(t, w.git.Has(repoOf(alice)))
		wait(10 * time.Minute)
		w.git.FailWith(func(op string) error {
			if op == "depart" {
				return errDisk
			}
			return nil
		})
		require.ErrorIs(t, w.p.RemoveRepository(t.Context(), repoOf(alice)), errDisk)
		require.True(t, w.git.Has(repoOf(alice)))
		w.git.FailWith(nil)
		require.NoError(t, w.p.RemoveRepository(t.Context(), repoOf(alice)))
		require.False(t, w.git.Has(repoOf(alice)))
	})
}

// The hold of an announcement ends when a newer version is served.
func TestServedAnnouncementReplacesAnOlderOneThatWaits(t *testing.T) {
	for newer, waits := range map[bool]int{true: 0, false: 1} {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			old := announce(alice, now()-50)
			w.held(old)
			wait(time.Second)
			at := now() - 60
			if newer {
				at = now() - 40
			}
			a := announce(alice, at)
			w.relay.put(a)
			w.p.NotifyStored(eventtest.Of(a))
			wait(time.Second)
			st := w.p.Status()
			require.Equal(t, newer, st.Replaced == 1, newer)
			require.Zero(t, st.Announcements)
			require.Equal(t, 1-waits == 0, w.relay.has(old), "what is newer is stored")
		})
	}
}

// A pull request stays held while all git slots are busy. One that takes too long to measure has no
// room.
func TestPullRequestsThatCanNotBeWeighed(t *testing.T) {
	for name, c := range map[string]struct {
		fail func() error
		over bool
	}{
		"others have all places": {func() error { return fmt.Errorf("weighing: %w", purgatory.ErrGitBusy) }, false},
		"it takes long": {func() error {
			time.Sleep(time.Minute)
			return context.DeadlineExceeded
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				w.serveAlice()
				w.git.FailWith(func(op string) error {
					if op == "weigh" {
						return c.fail()
					}
					return nil
				})
				p := proposes(carol, now(), 2, "")
				w.held(p)
				own := proposes(alice, now(), 3, "")
				w.held(own)
				wait(5 * time.Minute)
				require.False(t, w.hasRef(p))
				require.Equal(t, c.over, w.hasRef(own), "who has a say needs no room")
				require.Equal(t, c.over, w.p.Status().Dropped["pull_refs"] > 0)
				w.git.FailWith(nil)
				wait(10 * time.Minute)
				require.True(t, w.hasRef(p))
				require.True(t, w.hasRef(own))
			})
		})
	}
}

// Staged data has no room while others use it, and is imported afterwards. Slow data is not retried
// for a while.
func TestStagedDataWithoutRoomOrTime(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: 1000}}, func(t *testing.T, w *world) {
		w.serveAlice()
		w.git.Size(object(50), 2000)
		tries := 0
		w.git.FailWith(func(op string) error {
			if op == "take" {
				tries++
				time.Sleep(time.Minute)
				return context.DeadlineExceeded
			}
			return nil
		})
		p := proposes(carol, now(), 40, "")
		w.git.Stage(repoOf(alice), idOf(p), object(40), object(40))
		w.held(p)
		wait(4 * time.Minute)
		require.Equal(t, 1, tries)
		w.held(proposes(dave, now(), 2, "")) // causes a release
		wait(30 * time.Second)
		require.Equal(t, 1, tries, "it took long a moment ago")
		w.git.FailWith(nil)
		w.held(proposes(dave, now()+1, 2, "again"))
		wait(10 * time.Minute) // failures are retried after random, growing waits
		require.True(t, w.hasRef(p))
	})
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.serveAlice()
		for i := range 100 {
			w.stored(proposes(carol, now()-100+nostrTime(i), 2, fmt.Sprint(i)))
		}
		old := proposes(carol, now()-1000, 40, "old")
		other := proposes(relaytest.NewKey("eve"), now(), 41, "other")
		for n, ev := range map[int]*nostrEvent{40: old, 41: other} {
			w.git.Stage(repoOf(alice), idOf(ev), object(n), object(n))
			w.held(ev)
		}
		wait(time.Second)
		require.False(t, w.hasRef(old))
		require.True(t, w.hasRef(other))
		require.Positive(t, w.p.Status().Dropped["pull_refs"])
		require.Len(t, w.git.Staged(repoOf(alice), idOf(old)), 1, "it may have room by then")
		require.NotContains(t, w.git.Objects(repoOf(alice)), object(40))
	})
}

// kept returns all records on the disk.
func (w *world) kept() map[string]string {
	out := make(map[string]string)
	for r, err := range w.state.Each(w.t.Context(), "") {
		require.NoError(w.t, err)
		out[r.Key] = string(r.Value)
	}
	return out
}
