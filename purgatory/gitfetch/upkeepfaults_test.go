package gitfetch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// faultyGit makes the n-th child fail.
func faultyGit(f *gitfetch.Fetcher, n int) (failed *string) {
	done, failed := 0, new(string)
	*f.Started() = func(cmd *exec.Cmd) {
		if done++; done == n {
			*failed = strings.Join(cmd.Args, " ")
			cmd.Path = "/bin/false"
		}
	}
	return failed
}

// chore is an operation on a repository.
type chore struct {
	make func(dir string) (holds []nip34.ObjectID) // creates the repository and returns objects that must stay
	do   func(f *gitfetch.Fetcher, dir string) error
	// untold reports whether a failure may be silent, because nothing is lost and the operation is
	// retried.
	untold func(what string) bool
}

func chores(t *testing.T) map[string]chore {
	old := func(dir string) {
		keeping(t, nil, dir).later(40 * 24 * time.Hour)
		for _, name := range []string{"objects/pack/tmp_pack_1", "objects/pack/pack-1.rev", "objects/tmp_objdir-1"} {
			path := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			at := time.Now().Add(-2 * time.Hour)
			require.NoError(t, os.Chtimes(path, at, at))
		}
	}
	var keep []nip34.ObjectID
	maintain := func(now bool) func(f *gitfetch.Fetcher, dir string) error {
		return func(f *gitfetch.Fetcher, dir string) error {
			k := keeping(t, f, dir, keep...)
			k.how.Now, k.how.Prune = now, now
			_, err := f.Maintain(t.Context(), k.how)
			return err
		}
	}
	// An unreadable record counts as missing. A pack that may have another owner stays.
	record := func(what string) bool {
		return what == "lstat "+recordName || strings.HasSuffix(what, ".keep") || strings.HasPrefix(what, "lstat .")
	}
	several := func(dir string) []nip34.ObjectID {
		main := packed(t, dir, nip34.ObjectID{}, "main")
		packed(t, dir, main, "secret")
		waits := packed(t, dir, main, "named by an event that waits")
		git(t, dir, "update-ref", "refs/heads/main", main.String())
		gitIn(t, dir, "loose", "hash-object", "-w", "--stdin")
		old(dir)
		log := filepath.Join(dir, "logs", "HEAD")
		require.NoError(t, os.MkdirAll(filepath.Dir(log), 0o700))
		require.NoError(t, os.WriteFile(log, fmt.Appendf(nil, "%s %s g <g> %d +0000\tx\n", main, main, time.Now().Add(-31*24*time.Hour).Unix()), 0o600))
		keep = []nip34.ObjectID{waits}
		return []nip34.ObjectID{main, waits}
	}
	return map[string]chore{
		"prune":    {make: several, do: maintain(false), untold: record},
		"take out": {make: several, do: maintain(true), untold: record},
		"roll": {
			make: func(dir string) (all []nip34.ObjectID) {
				for i := range fewPacks {
					id := packed(t, dir, nip34.ObjectID{}, fmt.Sprint(i))
					git(t, dir, "update-ref", fmt.Sprintf("refs/heads/%d", i), id.String())
					all = append(all, id)
				}
				old(dir)
				require.NoError(t, os.WriteFile(filepath.Join(dir, recordName),
					[]byte(time.Now().Format(time.RFC3339)), 0o600))
				return all
			},
			do: maintain(false), untold: record,
		},
		"tidy": {
			make: func(dir string) []nip34.ObjectID {
				main := packed(t, dir, nip34.ObjectID{}, "main")
				git(t, dir, "update-ref", "refs/heads/main", main.String())
				for i, name := range keeping(t, nil, dir).packs() {
					note := []string{keepNote, "an operator's\n"}[i%2]
					require.NoError(t, os.WriteFile(strings.TrimSuffix(name, ".pack")+".keep", []byte(note), 0o600))
				}
				old(dir)
				for _, name := range []string{"HEAD.lock", "packed-refs.lock", "refs/heads/main.lock"} {
					path := filepath.Join(dir, name)
					require.NoError(t, os.WriteFile(path, nil, 0o600))
					at := time.Now().Add(-2 * staleAfter)
					require.NoError(t, os.Chtimes(path, at, at))
				}
				return []nip34.ObjectID{main}
			},
			do: func(f *gitfetch.Fetcher, dir string) error { return f.Cleanup(t.Context(), dir) },
			untold: func(what string) bool { // leftovers are still ours the next time
				return strings.HasSuffix(what, ".keep")
			},
		},
		"align": {
			make: func(dir string) []nip34.ObjectID {
				main := packed(t, dir, nip34.ObjectID{}, "main")
				git(t, dir, "update-ref", "refs/heads/gone", main.String())
				return []nip34.ObjectID{main}
			},
			do: func(f *gitfetch.Fetcher, dir string) error {
				return realign(t.Context(), f, dir, ref(t, "refs/heads/other"))
			},
			untold: func(what string) bool { return strings.HasSuffix(what, " HEAD") }, // it is written again
		},
	}
}

// realign makes a branch the only branch, and HEAD. It does not change correct refs.
func realign(ctx context.Context, f *gitfetch.Fetcher, dir string, to nip34.RefName) error {
	refs, err := f.Refs(ctx, dir)
	if err != nil {
		return err
	}
	var changes []refplan.RefChange
	for name, at := range refs.At {
		if name != to {
			changes = append(changes, refplan.RefChange{Name: name, Old: at}, refplan.RefChange{Name: to, Old: refs.At[to], New: at})
		}
	}
	if err := f.UpdateRefs(ctx, dir, changes, to); err != nil {
		return err
	}
	switch refs, err = f.Refs(ctx, dir); {
	case err != nil:
		return err
	case refs.Head != to || len(refs.At) != 1:
		return fmt.Errorf("refs %v, HEAD %v", refs.At, refs.Head)
	}
	return nil
}

// Each disk operation and each git process fails once during maintenance, cleanup and updates of
// refs. The caller gets an error, no needed object is lost, no lock stays, and the next run
// completes the work.
func TestEachFaultWhileARepositoryIsKept(t *testing.T) {
	racetest.Amounts(t)
	for name, c := range chores(t) {
		t.Run(name, func(t *testing.T) {
			model := bare(t, nip34.SHA1)
			holds := c.make(model)
			whole := fetcher(t)
			done := result(t, whole, c, model)
			for _, git := range []bool{false, true} {
				for n := range racetest.Steps(5) {
					dir := copyOf(t, model)
					f := fetcher(t)
					faults := &faultyFiles{}
					what := &faults.what
					if git {
						what = faultyGit(f, n)
					} else {
						faults.n, *f.Files() = n, faults
					}
					err := c.do(f, dir)
					faults.closed(t, *what)
					if *what == "" {
						require.NoError(t, err)
						require.Equal(t, !git || name != "tidy", n > 1) // this operation runs no git
						break
					}
					if err == nil {
						mended := git && strings.Contains(*what, " rev-list ") // a failed walk is repeated
						require.True(t, mended || !git && c.untold(*what), "not told: %s", *what)
					} else if !git && !errors.Is(err, purgatory.ErrInUse) { // it cannot see what exists
						require.ErrorIs(t, err, syscall.EIO, "%d: %s", n, *what)
					}
					*f.Files(), *f.Started() = gitfetch.OSFiles{}, nil
					if testing.Short() && n%4 != 1 { // slow to check
						continue
					}
					gitIn(t, dir, strings.Join(words(holds), "\n"), "rev-list", "--objects", "--quiet", "--stdin")
					if name == "prune" || name == "take out" { // leftover packs are removed after an hour
						keeping(t, f, dir).later(2 * leftAfter)
					}
					_ = os.Remove(filepath.Join(dir, recordName)) // otherwise it would wait for a week
					if name == "roll" {
						require.NoError(t, os.WriteFile(filepath.Join(dir, recordName),
							[]byte(time.Now().Format(time.RFC3339)), 0o600))
					}
					require.NoError(t, c.do(f, dir), "%d: %s", n, *what)
					after := outcome(t, dir)
					if name == "roll" && after[".bitmap"] > 0 { // it counted as never repacked
						continue
					}
					require.Equal(t, done, after, "%d: %s", n, *what)
				}
			}
		})
	}
}

// result runs a chore without faults in a copy.
func result(t *testing.T, f *gitfetch.Fetcher, c chore, model string) map[string]int {
	dir := copyOf(t, model)
	require.NoError(t, c.do(f, dir))
	return outcome(t, dir)
}

// outcome returns the number of files of each kind in a repository.
func outcome(t *testing.T, dir string) map[string]int {
	out := make(map[string]int)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, "logs/HEAD") {
			kind := filepath.Ext(path)
			if kind == "" || strings.HasPrefix(d.Name(), "tmp_") {
				kind = d.Name()
			}
			out[kind]++
		}
		return err
	}))
	return out
}

// copyOf copies a repository with file times.
func copyOf(t *testing.T, from string) string {
	to := filepath.Join(t.TempDir(), "repo.git")
	require.NoError(t, filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		require.NoError(t, err)
		rel, err := filepath.Rel(from, path)
		require.NoError(t, err)
		at := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(at, 0o700)
		}
		info, err := d.Info()
		require.NoError(t, err)
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(at, data, 0o600))
		return os.Chtimes(at, info.ModTime(), info.ModTime())
	}))
	return to
}
