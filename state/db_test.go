package state_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/state/statetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, dir string, cfg state.Config) *state.DB {
	t.Helper()
	d, err := state.Open(dir, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func all(t testing.TB, s state.Store) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for r, err := range s.Each(context.Background(), "") {
		require.NoError(t, err)
		out[r.Key] = string(r.Value)
	}
	return out
}

func TestDB(t *testing.T) {
	statetest.Run(t, func(t *testing.T) state.Store { return open(t, t.TempDir(), state.Config{}) })
}

func TestDBIsBounded(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, state.Config{MaxBytes: 10})
	bounded(t, d)
	stats := d.Stats()
	require.Equal(t, []any{2, int64(10), uint64(3)}, []any{stats.Keys, stats.Bytes, stats.Refused})
	require.NoError(t, d.Close())
	d = open(t, dir, state.Config{MaxBytes: 10})
	require.ErrorIs(t, d.Put(t.Context(), state.Record{Key: "m"}), state.ErrFull, "the bound counts earlier records")
}

// Each reads a large store in parts.
func TestDBEachOfManyRecords(t *testing.T) {
	d := open(t, t.TempDir(), state.Config{})
	want := make(map[string]string)
	var batch []state.Record
	for i := range 300 {
		r := state.Record{Key: fmt.Sprintf("many/%03d", i), Value: bytes.Repeat([]byte{byte(i)}, 20_000)}
		batch, want[r.Key] = append(batch, r), string(r.Value)
	}
	require.NoError(t, d.Put(t.Context(), batch...))
	require.Equal(t, want, all(t, d))
}

func TestDBSurvivesARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	want := make(map[string]string)
	for round := range 3 {
		d := open(t, dir, state.Config{})
		require.Equal(t, want, all(t, d))
		for i := range 10 {
			key := fmt.Sprint(round, "/", i)
			want[key] = "value of " + key
			require.NoError(t, d.Put(t.Context(), state.Record{Key: key, Value: []byte(want[key])}))
		}
		delete(want, fmt.Sprint(round, "/9"))
		require.NoError(t, d.Delete(t.Context(), fmt.Sprint(round, "/9")))
		require.NoError(t, d.Close())
		require.NoError(t, d.Close())
		require.ErrorIs(t, d.Put(t.Context(), state.Record{Key: "x"}), state.ErrClosed)
		require.ErrorIs(t, d.Delete(t.Context(), "x"), state.ErrClosed)
		for _, err := range d.Each(t.Context(), "") {
			require.ErrorIs(t, err, state.ErrClosed)
		}
	}
}

// get returns the value of a key, or nil.
func get(ctx context.Context, s state.Store, key string) ([]byte, error) {
	for r, err := range s.Each(ctx, key) {
		if err != nil || r.Key == key {
			return r.Value, err
		}
	}
	return nil, nil
}

func TestDBIsOpenOnce(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, state.Config{})
	_, err := state.Open(dir, state.Config{})
	require.ErrorIs(t, err, state.ErrLocked)
	require.ErrorContains(t, err, fmt.Sprintf("pid %d since ", os.Getpid()))
	require.ErrorContains(t, err, dir)
	require.NoError(t, d.Close())
	open(t, dir, state.Config{})
}

// Close works beside writers, and waiting changes share a few transactions.
func TestDBClosesBesideWriters(t *testing.T) {
	dir := t.TempDir()
	d := open(t, dir, state.Config{})
	acked := make([]int, 8)
	var wg sync.WaitGroup
	for w := range acked {
		wg.Go(func() {
			for d.Put(t.Context(), state.Record{Key: fmt.Sprint(w, "/", acked[w])}) == nil {
				acked[w]++
			}
		})
	}
	require.NoError(t, d.Close())
	wg.Wait()
	have := all(t, open(t, dir, state.Config{}))
	n := 0
	for w := range acked {
		for i := range acked[w] {
			require.Contains(t, have, fmt.Sprint(w, "/", i))
		}
		n += acked[w]
	}
	require.Len(t, have, n)
}

// sample writes a store with a few hundred records, some of them larger than a page, and returns
// its file.
func sample(t *testing.T, dir string) string {
	t.Helper()
	d, err := state.Open(dir, state.Config{})
	require.NoError(t, err)
	for i := range 300 {
		err := d.Put(t.Context(), state.Record{Key: fmt.Sprintf("key %03d", i), Value: bytes.Repeat([]byte{byte(i)}, i*i%9000)})
		require.NoError(t, err)
	}
	require.NoError(t, d.Close())
	return filepath.Join(dir, "state.db")
}

// A damaged file is detected by Open, set aside and logged, unless the damage is in unused bytes.
func TestDBSetsADamagedFileAside(t *testing.T) {
	path := sample(t, t.TempDir())
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	want := all(t, open(t, filepath.Dir(path), state.Config{}))
	rounds := 100
	if testing.Short() {
		rounds = 30
	}
	setAside := 0
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(4, seed))
		data := bytes.Clone(good)
		switch rng.IntN(4) {
		case 0:
			data = data[:rng.IntN(len(data))]
		case 1:
			from := rng.IntN(len(data)) &^ 4095
			clear(data[from:min(len(data), from+4096*(1+rng.IntN(8)))])
		default:
			from := rng.IntN(len(data))
			for i := from; i < min(len(data), from+1+rng.IntN(5000)); i++ {
				data[i] ^= byte(1 + rng.IntN(255))
			}
		}
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "state.db"), data, 0o600))
		var log strings.Builder
		d, err := state.Open(dir, state.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err, "seed %d", seed)
		have := all(t, d)
		if d.Stats().SetAside > 0 {
			setAside++
			require.Empty(t, have)
			require.Contains(t, log.String(), "level=ERROR")
			kept, err := os.ReadFile(filepath.Join(dir, "state.db.damaged"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(data, kept))
			require.NoError(t, d.Put(t.Context(), state.Record{Key: "new"}), "seed %d", seed)
			require.NoError(t, d.Close())
			d, err = state.Open(dir, state.Config{})
			require.NoError(t, err)
			require.Zero(t, d.Stats().SetAside)
			require.Equal(t, map[string]string{"new": ""}, all(t, d))
		} else {
			require.Subset(t, want, have, "seed %d", seed)
		}
		require.NoError(t, d.Close())
	}
	require.Greater(t, setAside, rounds/4)
}

// A file that is truncated while it is open causes an error, and does not end the process.
func TestDBFileIsCut(t *testing.T) {
	path := sample(t, t.TempDir())
	d := open(t, filepath.Dir(path), state.Config{})
	require.NoError(t, os.Truncate(path, 8192))
	failed := 0
	for i := range 300 {
		if _, err := get(t.Context(), d, fmt.Sprintf("key %03d", i)); err != nil {
			require.ErrorIs(t, err, state.ErrDamaged)
			failed++
		}
	}
	require.Positive(t, failed)
	require.Error(t, d.Put(t.Context(), state.Record{Key: "key 000"}))
	require.ErrorIs(t, d.Put(t.Context(), state.Record{Key: "key 001"}), state.ErrDamaged)
	require.EqualValues(t, 2, d.Stats().Failures)
}

func TestDBMetrics(t *testing.T) {
	d := open(t, t.TempDir(), state.Config{})
	require.NoError(t, d.Put(t.Context(), state.Record{Key: "abc", Value: make([]byte, 7)}))
	require.NoError(t, testutil.CollectAndCompare(d.Collector("ngit"), strings.NewReader(`
# HELP ngit_state_bytes Bytes of all keys and values.
# TYPE ngit_state_bytes gauge
ngit_state_bytes 10
# HELP ngit_state_failures_total Total transactions that failed.
# TYPE ngit_state_failures_total counter
ngit_state_failures_total 0
# HELP ngit_state_keys Number of records.
# TYPE ngit_state_keys gauge
ngit_state_keys 1
# HELP ngit_state_refused_total Total batches of records refused because the store is full.
# TYPE ngit_state_refused_total counter
ngit_state_refused_total 0
# HELP ngit_state_damaged_files Number of damaged files that were set aside at the start.
# TYPE ngit_state_damaged_files gauge
ngit_state_damaged_files 0
`), "ngit_state_bytes", "ngit_state_failures_total", "ngit_state_keys", "ngit_state_refused_total", "ngit_state_damaged_files"))
	problems, err := testutil.CollectAndLint(d.Collector("ngit"))
	require.NoError(t, err)
	require.Empty(t, problems)
}
