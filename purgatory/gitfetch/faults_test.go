package gitfetch_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// openFiles records opened files, to detect files that are not closed.
type openFiles struct {
	gitfetch.OSFiles
	mu   sync.Mutex
	open []*os.File // guarded by mu
}

func (o *openFiles) OpenFile(name string, flag int, mode os.FileMode) (*os.File, error) {
	file, err := o.OSFiles.OpenFile(name, flag, mode)
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.open = append(o.open, file)
	}
	return file, err
}

// closed checks that no file is open.
func (o *openFiles) closed(t testing.TB, after string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, file := range o.open {
		_, err := file.Stat()
		require.ErrorIs(t, err, os.ErrClosed, "%s, after %q", file.Name(), after)
	}
	o.open = nil
}

// faultyFiles fail once, at the n-th operation.
type faultyFiles struct {
	openFiles
	apart   bool // hard links fail
	n, done int
	what    string // the failed operation
}

func (f *faultyFiles) step(op, name string) error {
	if f.done++; f.done != f.n {
		return nil
	}
	f.what = op + " " + filepath.Base(name)
	return &os.PathError{Op: op, Path: name, Err: syscall.EIO}
}

func (f *faultyFiles) Lstat(name string) (os.FileInfo, error) {
	if err := f.step("lstat", name); err != nil {
		return nil, err
	}
	return f.openFiles.Lstat(name)
}

func (f *faultyFiles) WriteFile(name string, data []byte, mode os.FileMode) error {
	if err := f.step("write", name); err != nil {
		return err
	}
	return f.openFiles.WriteFile(name, data, mode)
}

func (f *faultyFiles) Link(from, to string) error {
	if f.apart {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: syscall.EXDEV}
	}
	if err := f.step("link", to); err != nil {
		return err
	}
	return f.openFiles.Link(from, to)
}

func (f *faultyFiles) ReadDir(name string) ([]os.DirEntry, error) {
	if err := f.step("readdir", name); err != nil {
		return nil, err
	}
	return f.openFiles.ReadDir(name)
}

func (f *faultyFiles) ReadFile(name string) ([]byte, error) {
	if err := f.step("read", name); err != nil {
		return nil, err
	}
	return f.openFiles.ReadFile(name)
}

func (f *faultyFiles) OpenFile(name string, flag int, mode os.FileMode) (*os.File, error) {
	if err := f.step("open", name); err != nil {
		return nil, err
	}
	return f.openFiles.OpenFile(name, flag, mode)
}

func (f *faultyFiles) Mkdir(name string, mode os.FileMode) error {
	if err := f.step("mkdir", name); err != nil {
		return err
	}
	return f.openFiles.Mkdir(name, mode)
}

func (f *faultyFiles) Rename(from, to string) error {
	if err := f.step("rename", to); err != nil {
		return err
	}
	return f.openFiles.Rename(from, to)
}

func (f *faultyFiles) Remove(name string) error {
	if err := f.step("remove", name); err != nil {
		return err
	}
	return f.openFiles.Remove(name)
}

func (f *faultyFiles) RemoveAll(name string) error {
	if err := f.step("removeall", name); err != nil {
		return err
	}
	return f.openFiles.RemoveAll(name)
}

func (f *faultyFiles) Sync(name string) error {
	if err := f.step("sync", name); err != nil {
		return err
	}
	return f.openFiles.Sync(name)
}

// Each disk operation fails once, and each git process is killed once, in each way to get objects.
// The caller gets an error that does not blame a server, earlier objects stay, the repository is
// sound, no slot stays in use, and the next attempt works.
func TestEachFaultOfTheDiskIsTold(t *testing.T) {
	racetest.Amounts(t)
	there := bare(t, nip34.SHA1)
	ids := history(t, there, "main", 3)
	o := serve(t, there, nil)
	aside := folder(t, there, there, ids[2].String()+"\n")
	inPacks := copyOf(t, there)
	for _, id := range ids {
		git(t, inPacks, "update-ref", "refs/heads/main", id.String())
		git(t, inPacks, "repack", "-dq")
	}
	type step func(f *gitfetch.Fetcher, here string) error
	for name, run := range map[string]step{
		"fetch": func(f *gitfetch.Fetcher, here string) (err error) {
			q, err := f.Open(here)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, q.Discard()) }()
			if _, err := q.Fetch(t.Context(), o.clone(t), ids[:1]); err != nil {
				return err
			}
			if _, err := q.Fetch(t.Context(), o.clone(t), ids); err != nil {
				return err
			}
			if missing, err := q.Missing(t.Context(), ids); err != nil {
				return err
			} else if len(missing) > 0 {
				return fmt.Errorf("blamed for %v", missing)
			}
			return q.Promote(t.Context())
		},
		"keep": func(f *gitfetch.Fetcher, here string) error { // objects that exist without a ref
			git(t, here, "fetch", "-q", there, "main")
			_, err := f.Missing(t.Context(), here, ids[2:])
			return err
		},
		"copy": func(f *gitfetch.Fetcher, here string) (err error) { // the same, beside fetched objects
			git(t, here, "fetch", "-q", there, "main")
			q, err := f.Open(here)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, q.Discard()) }()
			if missing, err := q.Missing(t.Context(), ids[2:]); err != nil {
				return err
			} else if len(missing) > 0 {
				return fmt.Errorf("blamed for %v", missing)
			}
			return q.Promote(t.Context())
		},
		"take": func(f *gitfetch.Fetcher, here string) error { return f.ImportPacks(t.Context(), here, aside, ids[2:]) },
		"link": func(f *gitfetch.Fetcher, here string) error {
			return f.CopyObjects(t.Context(), inPacks, here, ids[2:])
		},
		"more": func(f *gitfetch.Fetcher, here string) error { // of a partly existing history
			git(t, here, "fetch", "-q", there, ids[0].String()+":refs/heads/part")
			return f.CopyObjects(t.Context(), inPacks, here, ids[2:])
		},
		"apart, take": func(f *gitfetch.Fetcher, here string) error { return f.ImportPacks(t.Context(), here, aside, ids[2:]) },
		"apart, share": func(f *gitfetch.Fetcher, here string) error {
			return f.CopyObjects(t.Context(), inPacks, here, ids[2:])
		},
		"gather": func(f *gitfetch.Fetcher, here string) error { return gathered(t, f, here, o, ids) },
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(map[string]bool)
			for _, ofGit := range []bool{false, true} {
				f := fetcher(t)
				for n := range racetest.Steps(5) {
					here := bare(t, nip34.SHA1)
					faults := &faultyFiles{apart: strings.HasPrefix(name, "apart")}
					what := &faults.what
					*f.Files() = faults
					if ofGit {
						what = killedGit(f, n)
					} else {
						faults.n = n
					}
					err := run(f, here)
					if *what == "" {
						require.NoError(t, err)
						require.Greater(t, n, 1)
						break
					}
					seen[strings.Fields(*what)[0]] = true
					if !ofGit && err != nil {
						require.ErrorIs(t, err, syscall.EIO, "%d: %s", n, *what)
					}
					if err == nil { // it is copied where links fail
						require.True(t, strings.HasPrefix(*what, "link"), "%d: not told: %s", n, *what)
						missing, err := f.Missing(t.Context(), here, ids)
						require.NoError(t, err)
						require.Empty(t, missing, "%d: %s", n, *what)
					}
					require.NotErrorIs(t, err, purgatory.ErrNotServed, "%d: %s", n, *what)
					require.NotErrorIs(t, err, gitfetch.ErrUnwanted, "%d: %s", n, *what)
					if err != nil {
						require.NotContains(t, err.Error(), "blamed", "%d: %s", n, *what)
					}
					git(t, here, "fsck", "--connectivity-only")
					f.Idle(t)
					faults.closed(t, *what)
					*f.Files(), *f.Started() = gitfetch.OSFiles{}, nil
					require.NoError(t, run(f, here), "%d: %s", n, *what)
					require.NoError(t, f.Cleanup(t.Context(), here))
					complete(t, f, here, ids[2:])
					require.Empty(t, leftovers(t, here), "%d: %s", n, *what)
				}
			}
			require.NotEmpty(t, seen)
		})
	}
}

// killedGit kills the n-th child before it does anything. No output is no answer.
func killedGit(f *gitfetch.Fetcher, n int) (killed *string) {
	done, killed := 0, new(string)
	*f.Started() = func(cmd *exec.Cmd) {
		if done++; done == n {
			*killed = "git " + strings.Join(cmd.Args, " ")
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "kill -9 $$"}
		}
	}
	return killed
}

// gathered lets a fetch fail after an earlier fetch whose objects must stay. It returns unexpected
// errors.
func gathered(t *testing.T, f *gitfetch.Fetcher, here string, o *origin, ids []nip34.ObjectID) error {
	faults, killed := *f.Files(), *f.Started()
	*f.Files(), *f.Started() = gitfetch.OSFiles{}, nil
	q, err := f.Open(here)
	require.NoError(t, err)
	defer func() { _ = q.Discard() }()
	_, err = q.Fetch(t.Context(), o.clone(t), ids[:1])
	require.NoError(t, err)
	before := list(t, q.Packs())
	*f.Files(), *f.Started() = faults, killed
	_, err = q.Fetch(t.Context(), o.clone(t), ids)
	*f.Files(), *f.Started() = gitfetch.OSFiles{}, nil
	require.Subset(t, list(t, q.Packs()), before)
	if err != nil {
		return err
	}
	return q.Promote(t.Context())
}
