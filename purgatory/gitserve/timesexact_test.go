package gitserve

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// How long things are waited for, or tried again, to the millisecond.
func TestHowLongThingsAreTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "git")
		r, err := Open(dir, RepositoriesConfig{})
		require.NoError(t, err)
		began := time.Now()
		_, err = Open(dir, RepositoriesConfig{})
		require.ErrorIs(t, err, ErrLocked)
		require.Equal(t, 5*time.Second+5*time.Millisecond, time.Since(began), "git of one who was killed may have it")

		x := owner.Ref("x")
		done := r.inUse.Use(x)
		began = time.Now()
		require.ErrorIs(t, r.Create(t.Context(), x, nip34.SHA1), purgatory.ErrInUse)
		require.Equal(t, 99*5*time.Millisecond, time.Since(began), "a hundred times")
		go func() {
			time.Sleep(12 * time.Millisecond)
			done()
		}()
		began = time.Now()
		require.NoError(t, r.Create(t.Context(), x, nip34.SHA1))
		require.Equal(t, 15*time.Millisecond, time.Since(began))
		require.NoError(t, r.Close())
	})
}

// What was pushed for an event and can't be removed is tried again after a minute, each time,
// and the log says so.
func TestStuckUploadsAreTriedEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Open(filepath.Join(t.TempDir(), "git"), RepositoriesConfig{})
		require.NoError(t, err)
		var mu sync.Mutex
		var log strings.Builder
		said := func() string {
			mu.Lock()
			defer mu.Unlock()
			out := log.String()
			log.Reset()
			return out
		}
		s := r.staging
		s.mu.Lock()
		s.log = slog.New(slog.NewTextHandler(writing(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(p)
		}), &slog.HandlerOptions{ReplaceAttr: untimed}))
		s.mu.Unlock()
		folder := filepath.Join(r.dir, area, "upload")
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.Mkdir(filepath.Join(r.dir, area, "other"), 0o700))
		r.root = &stuckFolder{folder: r.root, times: 3}
		s.drop([]string{"upload"})
		for range 3 {
			require.Equal(t, "level=WARN msg=\"what was pushed for an event could not be removed\" "+
				"error=\"removing an upload: input/output error\"\n", said())
			require.DirExists(t, folder)
			time.Sleep(time.Minute - 1)
			synctest.Wait()
			require.Empty(t, said())
			require.DirExists(t, folder)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
		}
		require.NoDirExists(t, folder)
		require.Empty(t, said())
		require.NoError(t, r.Close())
	})
}

// stuckFolder is one of which nothing can be moved for some times.
type stuckFolder struct {
	folder
	mu    sync.Mutex
	times int // guarded by mu
}

func (s *stuckFolder) Rename(from, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times--; s.times >= 0 {
		return syscall.EIO
	}
	return s.folder.Rename(from, to)
}

type writing func(p []byte) (int, error)

func (w writing) Write(p []byte) (int, error) { return w(p) }
