package gitfetch

import (
	"fmt"
	"io/fs"
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
)

// faultyTree are files of which one fails as well that a listing has: it is told of it
// when somebody asks what it is. With gone nothing fails, and things go at that moment.
type faultyTree struct {
	*faultyFiles
	gone bool
}

func (f faultyTree) fault(err error) error {
	if err != nil && f.gone {
		return &os.PathError{Op: f.what, Path: f.what, Err: fs.ErrNotExist}
	}
	return err
}

func (f faultyTree) ReadDir(name string) ([]os.DirEntry, error) {
	entries, err := f.faultyFiles.ReadDir(name)
	for i, e := range entries {
		entries[i] = faultyEntry{e, f}
	}
	return entries, f.fault(err)
}

func (f faultyTree) Lstat(name string) (os.FileInfo, error) {
	info, err := f.faultyFiles.Lstat(name)
	return info, f.fault(err)
}

func (f faultyTree) Remove(name string) error {
	err := f.faultyFiles.Remove(name)
	if f.gone && err != nil {
		_ = os.Remove(name)
	}
	return f.fault(err)
}

type faultyEntry struct {
	os.DirEntry
	f faultyTree
}

func (e faultyEntry) Info() (os.FileInfo, error) {
	if err := e.f.step("info", e.Name()); err != nil {
		return nil, e.f.fault(err)
	}
	return e.DirEntry.Info()
}

// Whatever is done to the disk to find out what is there fails once: who asked is told, and
// does not take what he could not see for something that is not there. What goes at that
// moment is no fault.
func TestEachFaultOfLookingIsTold(t *testing.T) {
	racetest.Amounts(t)
	dir := bare(t, nip34.SHA1)
	main := packed(t, dir, nip34.ObjectID{}, "main")
	second := packed(t, dir, main, "second")
	git(t, dir, "update-ref", "refs/heads/main", main.String())
	git(t, dir, "update-ref", "refs/heads/a/b", main.String())
	gitIn(t, dir, "loose", "hash-object", "-w", "--stdin")
	packs, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
	require.NoError(t, err)
	require.Len(t, packs, 2)
	old := time.Now().Add(-48 * time.Hour)
	prepare := func() {
		lines := fmt.Sprintf("%s %s g <g> %d +0000\tx\n", main, second, old.Unix())
		for name, text := range map[string]string{
			"objects/pack/tmp_pack_1": "", "objects/pack/pack-1.rev": "", "HEAD.lock": "", "packed-refs.lock": "", "packed-refs.new": "",
			"refs/heads/main.lock": "", "logs/empty": "", "logs/HEAD": lines, "logs/refs/heads/main": lines,
			linkedName: filepath.Base(strings.TrimSuffix(packs[0], ".pack")) + "\n",
		} {
			path := filepath.Join(dir, filepath.FromSlash(name))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			require.NoError(t, os.Chtimes(path, old, old))
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "objects", "tmp_objdir-1"), 0o700))
		require.NoError(t, os.Chtimes(filepath.Join(dir, "objects", "tmp_objdir-1"), old, old))
		keep := strings.TrimSuffix(packs[0], ".pack") + ".keep"
		require.NoError(t, os.WriteFile(keep, []byte(keepNote), 0o600))
		require.NoError(t, os.Chtimes(keep, old, old))
	}
	f := fetcher(t, Config{})
	maintenanceOf := func() *maintenance {
		return &maintenance{maintainer: f.maintainer, dir: dir, now: time.Now(), idLen: 20, how: purgatory.Maintenance{Remember: time.Hour}}
	}
	// What a note says that can't be read is somebody else's; of what can't be looked at
	// nothing is removed, and nothing is counted.
	note := func(what string) bool { return strings.HasPrefix(what, "read ") && strings.HasSuffix(what, ".keep") }
	info := func(what string) bool { return strings.HasPrefix(what, "info ") }
	for name, c := range map[string]struct {
		do     func(on files) error
		untold func(what string) bool
		// leaves: what went at that moment is told as well, since it was to be there.
		leaves bool
	}{
		"stamp":         {do: func(on files) error { _, err := stampOf(on, dir); return err }},
		"linked":        {do: func(on files) error { _, err := linked(on, dir); return err }},
		"note linked":   {do: func(on files) error { return noteLinked(on, dir, []string{"pack-1", filepath.Base(packs[1])}) }},
		"loose refs":    {do: func(on files) error { _, err := looseRefs(on, dir); return err }},
		"loose objects": {do: func(on files) error { _, err := looseObjects(on, dir); return err }},
		"object bytes":  {do: func(on files) error { _, err := objectBytes(on, filepath.Join(dir, "objects")); return err }},
		"sweep":         {do: func(on files) error { return sweepObjects(on, dir, time.Now()) }, untold: info, leaves: true},
		"unlock":        {do: func(on files) error { _, err := unlock(on, dir, 0, 0); return err }},
		"release":       {do: func(on files) error { return release(on, dir) }, untold: note, leaves: true},
		"unmark":        {do: func(on files) error { return unmark(on, dir, time.Now()) }, untold: note, leaves: true},
		"remove empty":  {do: func(on files) error { return removeEmpty(on, filepath.Join(dir, "logs")) }, leaves: true},
		"kept": {do: func(on files) error {
			f.disk.files = on
			_, err := f.objects.kept(dir, 20)
			return err
		}, untold: func(what string) bool { return note(what) || strings.HasPrefix(what, "stat ") }},
		"look": {do: func(on files) error {
			f.disk.files = on
			return maintenanceOf().look()
		}, untold: func(what string) bool { return note(what) || info(what) }},
		"record": {do: func(on files) error {
			f.disk.files = on
			return maintenanceOf().write(record{})
		}},
		"probe": {do: func(on files) error {
			f.disk.files = on
			_, stamp, err := f.Probe(t.Context(), dir, nil)
			require.True(t, err == nil || stamp == "")
			return err
		}},
		"exists": {do: func(on files) error {
			f.disk.files = on
			_, err := f.disk.exists(packs[0])
			return err
		}},
		"drop": {do: func(on files) error {
			f.disk.files = on
			return maintenanceOf().drop("pack-1", "")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, gone := range []bool{false, true} {
				for n := 1; ; n++ {
					prepare()
					faults := &faultyFiles{n: n}
					err := c.do(faultyTree{faults, gone})
					f.disk.files = osFiles{}
					faults.closed(t, faults.what)
					if faults.what == "" {
						require.NoError(t, err)
						require.Greater(t, n, 1)
						break
					}
					moment := strings.HasPrefix(faults.what, "info ") || strings.HasPrefix(faults.what, "lstat ") || strings.HasPrefix(faults.what, "remove ")
					switch {
					case !gone && c.untold != nil && c.untold(faults.what):
						require.NoError(t, err, faults.what)
					case !gone:
						require.ErrorIs(t, err, syscall.EIO, faults.what)
					case moment && !c.leaves:
						require.NoError(t, err, faults.what)
					}
				}
			}
		})
	}
}

// chattyGit has the n-th child say something that is no answer, and end as if it were one.
func chattyGit(f *Fetcher, n int) (said *string) {
	done, said := 0, new(string)
	f.git.started = func(cmd *exec.Cmd) {
		if done++; done == n {
			*said = strings.Join(cmd.Args, " ")
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "cat > /dev/null; echo something else"}
		}
	}
	return said
}

// Each process of git that is asked something is killed once, and says once what is no answer:
// that is told, with nothing that could be taken for one.
func TestEachQuestionThatGitDoesNotAnswer(t *testing.T) {
	dir, to := configured(t, bare(t, nip34.SHA1)), configured(t, bare(t, nip34.SHA1))
	ids := history(t, dir, "main", 3)
	f := fetcher(t, Config{})
	weigh := func(but ...nip34.ObjectID) error {
		n, err := f.Weigh(t.Context(), dir, ids[2:3], but)
		if err != nil {
			require.Zero(t, n)
		}
		return err
	}
	for name, ask := range map[string]func() error{
		"weigh":       func() error { return weigh() },
		"weigh a few": func() error { return weigh(ids[0], ids[1]) },
		"probe": func() error {
			kinds, _, err := f.Probe(t.Context(), dir, ids)
			require.True(t, err == nil || len(kinds) == 0)
			return err
		},
		"missing": func() error {
			_, err := f.Missing(t.Context(), dir, ids)
			return err
		},
		"refs": func() error {
			_, err := f.Refs(t.Context(), dir)
			return err
		},
		"format": func() error {
			_, err := f.Format(t.Context(), dir)
			return err
		},
		"share": func() error { return f.Share(t.Context(), dir, to, ids[2:]) },
	} {
		t.Run(name, func(t *testing.T) {
			for how, fail := range map[string]func(*Fetcher, int) *string{"killed": killedGit, "chatty": chattyGit} {
				for n := 1; ; n++ {
					what := fail(f, n)
					err := ask()
					f.git.started = nil
					if *what == "" {
						require.NoError(t, err)
						require.Greater(t, n, 1)
						break
					}
					answers := strings.Contains(*what, "--disk-usage") || strings.Contains(*what, "--batch-check") && name != "share"
					if how == "killed" || answers { // else it can't be told from an answer
						require.Error(t, err, *what)
					}
				}
			}
			git(t, to, "fsck", "--connectivity-only")
		})
	}
}
