package gitserve

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/doctest"
	"github.com/graspsync/graspsync/limit"
)

// Fixed contains limits that only tests change.
type (
	Fixed       = numbers
	FixedFolder = folderNumbers
)

// With returns a copy with other limits.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}

// With returns a copy with other limits.
func (c RepositoriesConfig) With(f FixedFolder) RepositoriesConfig {
	c.fixed = f
	return c
}

// Folder is the interface of a failing disk.
type Folder = folder

// OpenAt opens a folder through a wrapper.
func OpenAt(dir string, wrap func(Folder) Folder) (*Repositories, error) {
	lock, err := lockFolder(dir, lockMost)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return openAt(dir, wrap(root), lock, RepositoriesConfig{}.withDefaults())
}

// Leave retires a repository for a minute.
func (r *Repositories) Leave(ctx context.Context, ref graspsync.RepoRef) error {
	_, err := r.Retire(ctx, ref, time.Minute)
	return err
}

// Delete retires a repository without keeping its folder.
func (r *Repositories) Delete(ctx context.Context, ref graspsync.RepoRef) error {
	_, err := r.Retire(ctx, ref, 0)
	return err
}

// DeleteRetired deletes the folders of repositories whose time is over.
func (r *Repositories) DeleteRetired(ctx context.Context, now time.Time) error {
	return r.deleteRetired(ctx, now)
}

// Unstage discards the uploads for an event.
func (r *Repositories) Unstage(ref graspsync.RepoRef, id graspsync.EventID) {
	for _, u := range r.Staged(ref, id) {
		u.Discard()
	}
}

// SetFolder replaces the folder of repositories. Call it before any use.
func (r *Repositories) SetFolder(wrap func(Folder) Folder) { r.root = wrap(r.root) }

// SetFlush replaces the function that syncs a file. Call it before any use.
func (r *Repositories) SetFlush(flush func(*os.File) error) { r.flush = flush }

// SetDisk replaces the function that returns the free bytes of the disk.
func (h *Handler) SetDisk(free func(string) (uint64, error)) { h.free = free }

// SetStarted sets a function that is called before each child starts.
func (h *Handler) SetStarted(started func(*exec.Cmd)) { h.git.Started = started }

// Fill takes all processes of a kind until empty is called.
func (h *Handler) Fill(kind string) (empty func()) {
	s := map[string]*slots{"push": h.pushes.processes, "fetch": h.fetches.processes, "ask": h.asks.processes, "page": h.pages.processes}[kind]
	var all []*limit.Slot
	for slot := s.TryAcquire(limit.Stranger{}, 1); slot != nil; slot = s.TryAcquire(limit.Stranger{}, 1) {
		all = append(all, slot)
	}
	return func() {
		for _, slot := range all {
			slot.Release()
		}
	}
}

// CheckIdle checks that no repository is in use, no temporary file exists, and the staging area
// matches the disk.
func (r *Repositories) CheckIdle(t testing.TB) {
	t.Helper()
	require.Zero(t, r.locks.Len(), "a repository is in use")
	require.Zero(t, r.queues.Len(), "a push waits for a repository")
	left, err := fs.ReadDir(r.root.FS(), incoming)
	require.NoError(t, err)
	require.Empty(t, left, "something is half done")
	folders, err := fs.ReadDir(r.root.FS(), stagedDir)
	require.NoError(t, err)
	require.Len(t, folders, r.staging.uploads.Len())
	require.True(t, r.staging.uploads.Len() > 0 || r.staging.uploads.Bytes() == 0)
}

// CheckIdle checks that no slot is held or waited for. The handler must be closed.
func (h *Handler) CheckIdle(t testing.TB) {
	t.Helper()
	for _, s := range []*slots{
		h.kept, h.pushes.processes, h.pushes.open, h.fetches.processes, h.fetches.open, h.asks.processes, h.asks.open,
	} {
		used, waiting := s.Stats()
		require.Zero(t, used)
		require.Zero(t, waiting)
	}
}

func (r *Repositories) Dir() string { return r.dir }

func TestDefaultsAreAsDocumented(t *testing.T) {
	doctest.Defaults(t, "config.go", Config{}.withDefaults())
	doctest.Defaults(t, "config.go", RepositoriesConfig{}.withDefaults())
}

// Every number of a configuration has a limit, and errors name it.
func TestEachNumberIsBounded(t *testing.T) {
	good := Config{}.withDefaults()
	doctest.Bounded(t, good, Config.withDefaults, Config.validate)
	doctest.AcceptsOne(t, good, Config.validate)
	folder := RepositoriesConfig{}.withDefaults()
	doctest.Bounded(t, folder, RepositoriesConfig.withDefaults, RepositoriesConfig.validate)
	require.ErrorContains(t, RepositoriesConfig{MaxMemory: 1}.withDefaults().validate(), "MaxMemory is 1, want at least 268435456")
}
