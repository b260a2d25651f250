package filestate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/state"
)

// model is what may be in a store: for each key the value that was acknowledged, and
// those whose outcome nobody was told.
type model struct {
	acked map[string]string // "" is absent
	maybe map[string][]string
	used  map[state.Version]string
	n     int
}

func newModel() *model {
	return &model{make(map[string]string), make(map[string][]string), make(map[state.Version]string), 0}
}

// act makes one random change, and books how it ended.
func (m *model) act(t *testing.T, s *Store, rng *rand.Rand, size int) error {
	t.Helper()
	key := fmt.Sprint("key ", rng.IntN(5))
	_, old, err := s.Get(t.Context(), key)
	if err != nil {
		require.ErrorIs(t, err, state.ErrNotFound)
	}
	value := ""
	if old != state.Absent && rng.IntN(4) == 0 {
		err = s.Delete(t.Context(), key, old)
	} else {
		m.n++
		value = fmt.Sprint(m.n, " ") + strings.Repeat("x", rng.IntN(size))
		var v state.Version
		if v, err = s.CompareAndSwap(t.Context(), key, old, []byte(value)); err == nil {
			require.NotContains(t, m.used, v, "a version came twice")
			m.used[v] = key
		}
	}
	if err == nil {
		m.acked[key], m.maybe[key] = value, nil
		return nil
	}
	require.ErrorIs(t, err, errFault)
	m.maybe[key] = append(m.maybe[key], value)
	return err
}

// check compares a store that was opened anew, and takes over what it decided.
func (m *model) check(t *testing.T, s *Store) {
	t.Helper()
	for i := range 5 {
		key := fmt.Sprint("key ", i)
		got, _, err := s.Get(t.Context(), key)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			t.Fatal(err)
		}
		require.Contains(t, append([]string{m.acked[key]}, m.maybe[key]...), string(got), "%s", key)
		m.acked[key], m.maybe[key] = string(got), nil
	}
}

// Each call of the file system fails once, in every possible place: only the writes
// of that moment fail, nothing that was acknowledged is lost, then or later, and
// nothing appears that was not written.
func TestEveryCallFailsOnce(t *testing.T) {
	racetest.Amounts(t)
	step := 1
	if testing.Short() {
		step = 9
	}
	for n := 1; ; n += step {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		d := newDisk(rng)
		d.fails = func(call int) bool { return call == n }
		s := openDisk(t, d)
		m := newModel()
		failures := 0
		for range 60 { // some MiB: with compactions
			if m.act(t, s, rng, 200<<10) != nil {
				failures++
			}
		}
		require.LessOrEqual(t, failures, 1)
		require.NoError(t, s.Close()) // it has logged what it had to
		require.Equal(t, uint64(failures), s.Stats().Failures)
		require.Equal(t, uint64(60-failures), s.Stats().Writes)
		require.Equal(t, d.calls >= n, d.logged.lines.Load() > 0, "what fails is logged, and nothing else")
		if d.calls < n {
			require.Greater(t, n, 60)
			return
		}
		m.check(t, openDisk(t, d.cut()))
	}
}

// The disk is full from some moment to another. Reading goes on, writing begins
// again by itself, and no file of the time before is torn.
func TestFullDisk(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(2, seed))
		d := newDisk(rng)
		from := rng.IntN(100)
		d.fails = func(call int) bool { return call >= from && call < from+50 }
		s := openDisk(t, d)
		m := newModel()
		for range 100 {
			_ = m.act(t, s, rng, 1000)
		}
		for d.calls < from+50 {
			_ = m.act(t, s, rng, 1000)
		}
		require.NoError(t, m.act(t, s, rng, 1000))
		m.check(t, openDisk(t, d.kill()))
		require.NoError(t, s.Close())
		m.check(t, openDisk(t, d.cut()))
	}
}

// Power cuts and kills at any moment, one after the other, with a disk that fails
// now and then: what was acknowledged is there.
func TestPowerCut(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(3, seed))
		d, m := newDisk(rng), newModel()
		faulty := rng.IntN(2) == 0
		size := []int{10, 10, 10, 5_000, 5_000, 5_000, 5_000, 300 << 10}[rng.IntN(8)]
		for range 4 {
			d.fails = func(int) bool { return faulty && rng.IntN(20) == 0 }
			s := openDisk(t, d)
			m.check(t, s)
			for range rng.IntN(20) {
				_ = m.act(t, s, rng, size)
			}
			if rng.IntN(4) == 0 {
				d = d.kill()
			} else {
				d = d.cut()
			}
		}
		d.fails = nil
		s := openDisk(t, d)
		m.check(t, s)
	}
}
