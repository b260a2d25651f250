package gitserve_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// faultyFolder fails once, at the n-th operation.
type faultyFolder struct {
	gitserve.Folder
	only    string // kind of counted operations; empty: all operations that return an error
	mu      sync.Mutex
	n, done int
	what    string // the failed operation
}

// Faults that are counted separately.
const (
	ofFull = "full" // a file is created, and writes to it fail
	ofKill = "kill" // a child is killed before any output
	ofNone = "none" // a child cannot be started
)

func (f *faultyFolder) step(op, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch op {
	case ofFull, ofKill, ofNone:
		if f.only != op {
			return nil
		}
	default:
		if f.only != "" {
			return nil
		}
	}
	if f.done++; f.done != f.n {
		return nil
	}
	f.what = op + " " + name
	return &fs.PathError{Op: op, Path: name, Err: syscall.EIO}
}

func (f *faultyFolder) Stat(name string) (fs.FileInfo, error) {
	if err := f.step("stat", name); err != nil {
		return nil, err
	}
	return f.Folder.Stat(name)
}

func (f *faultyFolder) Lstat(name string) (fs.FileInfo, error) {
	if err := f.step("lstat", name); err != nil {
		return nil, err
	}
	return f.Folder.Lstat(name)
}

func (f *faultyFolder) Open(name string) (*os.File, error) {
	if err := f.step("open", name); err != nil {
		return nil, err
	}
	return f.Folder.Open(name)
}

func (f *faultyFolder) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	if err := f.step("open", name); err != nil {
		return nil, err
	}
	file, err := f.Folder.OpenFile(name, flag, mode)
	if err == nil && flag&os.O_CREATE != 0 && f.step(ofFull, name) != nil {
		_ = file.Close() // the file stays empty
		return os.OpenFile("/dev/full", os.O_RDWR, 0)
	}
	return file, err
}

func (f *faultyFolder) ReadFile(name string) ([]byte, error) {
	if err := f.step("read", name); err != nil {
		return nil, err
	}
	return f.Folder.ReadFile(name)
}

func (f *faultyFolder) Mkdir(name string, mode fs.FileMode) error {
	if err := f.step("mkdir", name); err != nil {
		return err
	}
	return f.Folder.Mkdir(name, mode)
}

func (f *faultyFolder) Rename(from, to string) error {
	if err := f.step("rename", to); err != nil {
		return err
	}
	return f.Folder.Rename(from, to)
}

func (f *faultyFolder) Remove(name string) error {
	if err := f.step("remove", name); err != nil {
		return err
	}
	return f.Folder.Remove(name)
}

func (f *faultyFolder) RemoveAll(name string) error {
	if err := f.step("removeall", name); err != nil {
		return err
	}
	return f.Folder.RemoveAll(name)
}

// child is the started function of a handler.
func (f *faultyFolder) child(cmd *exec.Cmd) {
	name := strings.Join(cmd.Args[7:], " ") // earlier arguments belong to the guard
	switch {
	case f.step(ofKill, name) != nil:
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "kill -9 $$"}
	case f.step(ofNone, name) != nil:
		cmd.Path = "/nonexistent"
	}
}

func (f *faultyFolder) FS() fs.FS { return faultyTree{f.Folder.FS(), f} }

// heal ends all failures.
func (f *faultyFolder) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n = -1
}

func (f *faultyFolder) failed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.what
}

// faultyTree is the file system of a faultyFolder.
type faultyTree struct {
	fs.FS
	f *faultyFolder
}

func (t faultyTree) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := t.f.step("readdir", name); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(t.FS, name)
	for i, e := range entries {
		entries[i] = faultyEntry{e, t.f}
	}
	return entries, err
}

// faultyEntry is a directory entry whose Info may fail.
type faultyEntry struct {
	fs.DirEntry
	f *faultyFolder
}

func (e faultyEntry) Info() (fs.FileInfo, error) {
	if err := e.f.step("info", e.Name()); err != nil {
		return nil, err
	}
	return e.DirEntry.Info()
}

func (t faultyTree) Stat(name string) (fs.FileInfo, error) {
	if err := t.f.step("stat", name); err != nil {
		return nil, err
	}
	return fs.Stat(t.FS, name)
}

// handled is a folder of repositories on which each operation runs once, and again after a failure.
type handled struct {
	t    *testing.T
	dir  string
	f    *faultyFolder
	r    *gitserve.Repositories
	told bool
}

func (h *handled) try(do func() error) {
	h.t.Helper()
	err := do()
	if err == nil {
		return
	}
	require.ErrorIs(h.t, err, syscall.EIO, h.f.failed())
	require.NotErrorIs(h.t, err, purgatory.ErrNoRepository, h.f.failed())
	h.told = true
	require.NoError(h.t, do(), h.f.failed())
}

func (h *handled) open() {
	h.try(func() error {
		var err error
		h.r, err = gitserve.OpenAt(h.dir, func(root gitserve.Folder) gitserve.Folder {
			h.f.Folder = root
			return h.f
		})
		return err
	})
	h.r.SetFlush(func(file *os.File) error {
		if err := h.f.step("sync", filepath.Base(file.Name())); err != nil {
			return err
		}
		return nil
	})
}

func (h *handled) write(at, name, text string) {
	path := filepath.Join(h.dir, filepath.FromSlash(at), filepath.FromSlash(name))
	require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(h.t, os.WriteFile(path, []byte(text), 0o600))
	old := time.Now().Add(-time.Hour)
	require.NoError(h.t, os.Chtimes(path, old, old))
}

func (h *handled) owned(want ...graspsync.RepoRef) {
	h.try(func() error {
		var got []graspsync.RepoRef
		for ref, err := range h.r.Owned(h.t.Context(), graspsync.PubKey{}) {
			if err != nil {
				return err
			}
			got = append(got, ref)
		}
		require.ElementsMatch(h.t, want, got, h.f.failed())
		return nil
	})
}

// life creates repositories, pushes to them, and retires, restores and deletes them.
func (h *handled) life() {
	ctx := h.t.Context()
	x, y, z := owner.Ref("x"), owner.Ref("y"), owner.Ref("z")
	create := func(ref graspsync.RepoRef, format nip34.ObjectFormat) {
		h.t.Helper()
		h.try(func() error { return h.r.Create(ctx, ref, format) })
	}
	create(x, nip34.SHA1)
	create(y, nip34.SHA1)
	create(y, nip34.SHA256)
	tip := strings.Repeat("1", 40)
	h.write(hashed(x), "refs/heads/main", tip+"\n")
	require.NoError(h.t, h.r.Close())
	h.open()
	h.owned(x, y)
	h.try(func() error { return h.r.Leave(ctx, y) })
	h.try(func() error { return h.r.Leave(ctx, x) })
	h.owned()
	create(x, nip34.SHA1)
	h.owned(x)
	require.FileExists(h.t, filepath.Join(h.dir, hashed(x), "refs", "heads", "main"), h.f.failed())
	create(z, nip34.SHA1)
	h.try(func() error { return h.r.Delete(ctx, z) })
	h.try(func() error { return h.r.Leave(ctx, x) })
	create(y, nip34.SHA1)
	h.try(func() error { return h.r.DeleteRetired(ctx, time.Now().Add(-time.Hour)) })
	require.FileExists(h.t, filepath.Join(h.dir, departed, hashed(x), "HEAD"), h.f.failed())
	h.try(func() error { return h.r.DeleteRetired(ctx, time.Now().Add(time.Hour)) })
	require.NoError(h.t, h.r.Close())
	h.open()
	h.owned(y)
	h.f.heal()
	h.r.CheckIdle(h.t)
	require.NoError(h.t, h.r.Close())
}

// files returns the files and the folders of repositories.
func (h *handled) files() (out []string) {
	require.NoError(h.t, filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if !d.IsDir() || strings.Contains(path, ".git") {
			out = append(out, strings.TrimPrefix(path, h.dir))
		}
		return err
	}))
	slices.Sort(out)
	return out
}

// Each operation on the folder of repositories fails once, in a life of three repositories. Each
// failure is reported, no repository is taken for missing, and the final result is as without
// failures.
func TestEachFaultOfTheFolderIsTold(t *testing.T) {
	racetest.Amounts(t)
	var whole []string
	stride := 1
	if testing.Short() {
		stride = 4
	}
	for n := 0; ; n += stride {
		h := &handled{t: t, dir: t.TempDir(), f: &faultyFolder{n: n}}
		h.open()
		h.life()
		what := h.f.failed()
		if n == 0 {
			whole = h.files()
			continue
		}
		if what == "" {
			require.Greater(t, n, 100)
			break
		}
		require.True(t, h.told || untold(what), "%d: not told: %s", n, what)
		require.Equal(t, whole, h.files(), "%d: %s", n, what)
	}
}

// untold reports whether a failure may be silent: the removal of an owner's empty folder.
func untold(what string) bool {
	name, ok := strings.CutPrefix(what, "remove ")
	return ok && path.Base(name) == owner.Hex()
}
