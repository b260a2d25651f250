package purgatory_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
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

// 9,000 empty tags counted for nothing.
func TestEmptyTagsCount(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := announce(alice, now(), "a.example/r.git")
		a.Tags = append(a.Tags, make([]nostrTag, 9_000)...)
		alice.Sign(a)
		w.held(a)
		require.Greater(t, w.p.Status().Bytes, int64(9_000*24))
	})
}

// Panics of the observer are counted.
func TestPanicsOfTheObserver(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.observe = func(purgatory.Observation) { panic("observer") }
		w.held(says(alice, now()+1, "main", 9))
		wait(time.Second)
		require.Positive(t, w.p.Status().Panics["observer"])
		require.EqualValues(t, w.p.Status().Panics["observer"], w.metrics()["g_purgatory_panics_total observer"])
		w.observe = nil
	})
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
