package filestate

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

func openDir(t testing.TB, dir string, cfg Config) *Store {
	t.Helper()
	s, err := Open(dir, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestSuite(t *testing.T) {
	statetest.Run(t, func(t *testing.T) state.Store { return openDir(t, t.TempDir(), Config{}) })
}

func TestSuiteInMemory(t *testing.T) {
	statetest.Run(t, func(t *testing.T) state.Store { return openDisk(t, newDisk(rand.New(rand.NewPCG(0, 0)))) })
}

func TestKeepsEverything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "state")
	versions := make(map[string]state.Version)
	var newest state.Version
	for round := range 3 {
		s := openDir(t, dir, Config{})
		require.Zero(t, s.Stats().Torn)
		for key, v := range versions {
			got, version, err := s.Get(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, v, version)
			require.Equal(t, "value of "+key, string(got))
		}
		for i := range 10 {
			key := fmt.Sprint(round, "/", i)
			v, err := s.CompareAndSwap(t.Context(), key, state.Absent, []byte("value of "+key))
			require.NoError(t, err)
			require.Greater(t, v, newest, "versions are not used again")
			newest, versions[key] = v, v
		}
		// The newest version goes with its key.
		require.NoError(t, s.Delete(t.Context(), fmt.Sprint(round, "/9"), newest))
		delete(versions, fmt.Sprint(round, "/9"))
		newest++
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		_, _, err := s.Get(t.Context(), "0/0")
		require.ErrorIs(t, err, ErrClosed)
		_, err = s.CompareAndSwap(t.Context(), "x", state.Absent, nil)
		require.ErrorIs(t, err, ErrClosed)
		for _, err := range s.Keys(t.Context(), "") {
			require.ErrorIs(t, err, ErrClosed)
		}
	}
}

func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Config{})
	_, err := Open(dir, Config{})
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, s.Close())
	openDir(t, dir, Config{})
}

func TestConfig(t *testing.T) {
	_, err := Open(t.TempDir(), Config{MaxBytes: -1, fixed: constants{MaxKeys: -1}})
	for _, field := range []string{"MaxBytes", "MaxKeys"} {
		require.ErrorContains(t, err, field)
	}
	_, err = Open(filepath.Join(os.DevNull, "x"), Config{})
	require.Error(t, err)
	for _, c := range []struct {
		bad  string
		last Config // that is allowed
		more Config
	}{
		{"MaxBytes", Config{MaxBytes: 2 << 30}, Config{MaxBytes: 2<<30 + 1}},
		{"MaxBytes", Config{MaxBytes: 1}, Config{MaxBytes: -1}},
		{"MaxKeys", Config{fixed: constants{MaxKeys: 1}}, Config{fixed: constants{MaxKeys: -1}}},
	} {
		require.NoError(t, openDir(t, t.TempDir(), c.last).Close())
		_, err := Open(t.TempDir(), c.more)
		require.ErrorContains(t, err, c.bad)
	}
}

// faultyFolder has a log that can't be opened.
type faultyFolder struct{ *disk }

func (faultyFolder) Open(string) (io.ReadCloser, int64, error) { return nil, 0, errFault }

// A log that is there and can't be opened is not taken for an empty one.
func TestLogThatCantBeOpened(t *testing.T) {
	d := newDisk(rand.New(rand.NewPCG(0, 0)))
	s, err := open(faultyFolder{d}, io.NopCloser(nil), Config{}.withDefaults())
	require.ErrorIs(t, err, errFault)
	require.Nil(t, s)
	require.Zero(t, d.calls)
}

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Config{fixed: constants{MaxKeys: 2}, MaxBytes: 100})
	a, err := s.CompareAndSwap(t.Context(), "a", state.Absent, make([]byte, 60))
	require.NoError(t, err)
	_, err = s.CompareAndSwap(t.Context(), "b", state.Absent, make([]byte, 60))
	require.ErrorIs(t, err, state.ErrFull)
	_, err = s.CompareAndSwap(t.Context(), "b", state.Absent, make([]byte, 30))
	require.NoError(t, err)
	_, err = s.CompareAndSwap(t.Context(), "c", state.Absent, nil)
	require.ErrorIs(t, err, state.ErrFull)
	a, err = s.CompareAndSwap(t.Context(), "a", a, make([]byte, 10))
	require.NoError(t, err, "what gets smaller always fits")
	require.Equal(t, uint64(2), s.Stats().Refused)
	require.NoError(t, s.Close())

	s = openDir(t, dir, Config{fixed: constants{MaxKeys: 1}, MaxBytes: 10})
	require.Equal(t, 2, s.Stats().Keys, "smaller bounds lose nothing")
	a, err = s.CompareAndSwap(t.Context(), "a", a, make([]byte, 9))
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), "a", a))
	require.Equal(t, int64(31), s.Stats().Bytes)
}

// What is held is written again once the log is twice as long, however much it is.
func TestMuchIsHeld(t *testing.T) {
	s := openDir(t, t.TempDir(), Config{})
	for i := range 60 {
		_, err := s.CompareAndSwap(t.Context(), fmt.Sprint(i), 0, make([]byte, 50_000))
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, s.Stats().Rewrites, "which made it")
}

// A log does not grow with what happens, only with what it holds.
func TestCompaction(t *testing.T) {
	dir := t.TempDir()
	s := openDir(t, dir, Config{})
	var v state.Version
	var err error
	for i := range 200 {
		v, err = s.CompareAndSwap(t.Context(), "a", v, make([]byte, 50_000+i))
		require.NoError(t, err)
	}
	st := s.Stats()
	require.Less(t, st.File, int64(1_300_000))
	require.Greater(t, st.Rewrites, uint64(5))
	info, err := os.Stat(filepath.Join(dir, logName))
	require.NoError(t, err)
	require.Equal(t, st.File, info.Size())
	require.NoError(t, s.Close())
	s = openDir(t, dir, Config{})
	got, version, err := s.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Len(t, got, 50_199)
	require.Equal(t, v, version)
}

// slowDisk has each fsync of a log take a while.
type slowDisk struct{ *disk }

type slowFile struct{ diskFile }

func (d slowDisk) Create(name string) (file, error) {
	f, err := d.disk.Create(name)
	if err != nil {
		return nil, err
	}
	return slowFile{f.(diskFile)}, nil
}

func (f slowFile) Sync() error {
	time.Sleep(10 * time.Second)
	return f.diskFile.Sync()
}

// Writes that come together share fsyncs; a context that ends is not kept waiting,
// and what had not begun is taken back.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(rand.New(rand.NewPCG(0, 0)))
		s, err := open(slowDisk{d}, io.NopCloser(nil), Config{}.withDefaults())
		require.NoError(t, err)
		before := s.Stats().Syncs
		var wg sync.WaitGroup
		begun := time.Now()
		for i := range 1_000 {
			wg.Go(func() {
				_, err := s.CompareAndSwap(t.Context(), fmt.Sprint(i), state.Absent, nil)
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.LessOrEqual(t, s.Stats().Syncs-before, uint64(5))
		require.LessOrEqual(t, time.Since(begun), 50*time.Second)
		requireIdle(t, s)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wg.Go(func() {
			_, err := s.CompareAndSwap(ctx, "begun", state.Absent, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
		synctest.Wait()
		for _, key := range []string{"queued", "begun"} {
			begun = time.Now()
			if key == "queued" { // who waits for what is withdrawn has its turn then
				wg.Go(func() {
					time.Sleep(time.Millisecond)
					v, err := s.CompareAndSwap(t.Context(), key, state.Absent, []byte("later"))
					require.NoError(t, err)
					require.NoError(t, s.Delete(t.Context(), key, v))
				})
			}
			late, stop := context.WithTimeout(t.Context(), time.Second)
			_, err = s.CompareAndSwap(late, key, state.Absent, nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(begun))
			stop()
		}
		wg.Wait()
		require.NoError(t, s.Close())
		r := openDisk(t, d.cut())
		_, _, err = r.Get(t.Context(), "begun")
		require.NoError(t, err)
		_, _, err = r.Get(t.Context(), "queued")
		require.ErrorIs(t, err, state.ErrNotFound)
		require.Equal(t, 1_001, r.Stats().Keys)
	})
}

func BenchmarkGroupedWrites(b *testing.B) {
	for _, writers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			s := openDir(b, b.TempDir(), Config{})
			value := make([]byte, 500)
			before := s.Stats()
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					var v state.Version
					var err error
					for i := w; i < b.N; i += writers {
						if v, err = s.CompareAndSwap(b.Context(), fmt.Sprint(w), v, value); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			after := s.Stats()
			b.ReportMetric(float64(after.Writes-before.Writes)/float64(after.Syncs-before.Syncs), "writes/fsync")
		})
	}
}
