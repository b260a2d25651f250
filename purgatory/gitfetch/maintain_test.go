package gitfetch_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// kept is a repository under maintenance.
type kept struct {
	t    testing.TB
	f    *gitfetch.Fetcher
	dir  string
	lock sync.Mutex
	how  gitops.Maintenance
}

func keeping(t testing.TB, f *gitfetch.Fetcher, dir string, keep ...nip34.ObjectID) *kept {
	k := &kept{t: t, f: f, dir: dir}
	k.how = gitops.Maintenance{
		Lock: func(context.Context) (string, func(), error) {
			k.lock.Lock()
			return dir, k.lock.Unlock, nil
		},
		Keep:  func(context.Context) ([]nip34.ObjectID, error) { return keep, nil },
		Grace: 14 * 24 * time.Hour, Remember: 30 * 24 * time.Hour,
	}
	return k
}

func (k *kept) maintain() gitops.Maintained {
	k.t.Helper()
	done, err := k.f.Maintain(k.t.Context(), k.how)
	require.NoError(k.t, err)
	return done
}

// later makes all files of a repository older: packs, loose objects, the record and reflogs. Ages
// stored in cruft packs cannot be changed, so these packs must be new.
func (k *kept) later(by time.Duration) {
	k.t.Helper()
	var files []string
	for _, pattern := range []string{"objects/pack/*", "objects/??/*", "objects/tmp_*"} {
		found, err := filepath.Glob(filepath.Join(k.dir, pattern))
		require.NoError(k.t, err)
		files = append(files, found...)
	}
	for _, path := range files {
		info, err := os.Stat(path)
		require.NoError(k.t, err)
		at := info.ModTime().Add(-by)
		require.NoError(k.t, os.Chtimes(path, at, at))
	}
	require.NoError(k.t, os.RemoveAll(filepath.Join(k.dir, recordName)))
	require.NoError(k.t, os.RemoveAll(filepath.Join(k.dir, "logs")))
}

func (k *kept) packs() (out []string) {
	found, err := filepath.Glob(filepath.Join(k.dir, "objects", "pack", "*.pack"))
	require.NoError(k.t, err)
	return found
}

func (k *kept) has(id nip34.ObjectID) bool {
	cmd := exec.Command("git", "--git-dir="+k.dir, "cat-file", "-e", id.String())
	return cmd.Run() == nil
}

// packed adds a packed commit with a file, like a push.
func packed(t testing.TB, dir string, parent nip34.ObjectID, text string) nip34.ObjectID {
	t.Helper()
	blob := gitIn(t, dir, text, "hash-object", "-w", "--stdin")
	tree := gitIn(t, dir, fmt.Sprintf("100644 blob %s\tf\n", blob), "mktree")
	args := []string{"commit-tree", tree, "-m", text}
	if !parent.IsZero() {
		args = append(args, "-p", parent.String())
	}
	commit := git(t, dir, args...)
	gitIn(t, dir, strings.Join([]string{blob, tree, commit, ""}, "\n"), "pack-objects", "--quiet", filepath.Join(dir, "objects/pack/pack"))
	git(t, dir, "prune-packed")
	return oid(t, commit)
}

// Unreferenced objects stayed forever and were served by id, so content of a deleted branch could
// not be withdrawn. They are removed after the grace period. Objects that waiting events or reflogs
// name stay.
func TestWhatNothingNamesGoesAfterItsGrace(t *testing.T) {
	for _, rolled := range []bool{false, true} {
		t.Run(fmt.Sprintf("rolled=%v", rolled), func(t *testing.T) {
			f := fetcher(t)
			dir := bare(t, nip34.SHA1)
			main := packed(t, dir, nip34.ObjectID{}, "main")
			secret := packed(t, dir, main, "secret")
			waits := packed(t, dir, main, "named by an event that waits")
			logged := packed(t, dir, main, "in a log")
			git(t, dir, "update-ref", "refs/heads/main", main.String())
			k := keeping(t, f, dir, waits)
			if rolled {
				for i := range fewPacks {
					packed(t, dir, nip34.ObjectID{}, fmt.Sprint(i))
				}
				k.how.Grace = 10 * 365 * 24 * time.Hour
				require.NoError(t, os.WriteFile(filepath.Join(dir, recordName),
					[]byte(time.Now().Format(time.RFC3339)), 0o600))
				done := k.maintain()
				require.False(t, done.Pruned)
				require.Equal(t, 1, done.Packs)
				k.how.Grace = 14 * 24 * time.Hour
			}
			k.later(13 * 24 * time.Hour)
			require.True(t, k.maintain().Pruned)
			require.True(t, k.has(secret), "within its grace")
			require.False(t, k.maintain().Pruned, "once in a while")
			git(t, dir, "repack", "-adq", "--keep-unreachable") // removes the ages that git stored
			k.later(15 * 24 * time.Hour)
			log := filepath.Join(dir, "logs", "HEAD")
			require.NoError(t, os.MkdirAll(filepath.Dir(log), 0o700))
			line := func(at time.Time) []byte {
				return fmt.Appendf(nil, "%s %s g <g> %d +0000\tdeleted\n", logged, logged, at.Unix())
			}
			require.NoError(t, os.WriteFile(log, line(time.Now().Add(-29*24*time.Hour)), 0o600))
			done := k.maintain()
			require.True(t, done.Pruned)
			require.False(t, k.has(secret))
			require.True(t, k.has(main))
			require.True(t, k.has(waits))
			require.True(t, k.has(logged))
			k.later(15 * 24 * time.Hour)
			require.NoError(t, os.MkdirAll(filepath.Dir(log), 0o700))
			require.NoError(t, os.WriteFile(log, line(time.Now().Add(-31*24*time.Hour)), 0o600))
			require.True(t, k.maintain().Pruned)
			require.False(t, k.has(logged))
			require.Empty(t, readFile(t, log))
			git(t, dir, "fsck", "--strict", "--connectivity-only")
			require.Len(t, k.packs(), 1)
		})
	}
}

// An operator can remove unreferenced objects immediately, with reflogs. Objects that waiting
// events name stay.
func TestMaintainNow(t *testing.T) {
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		t.Run(format.String(), func(t *testing.T) { takeDown(t, format) })
	}
}

func takeDown(t *testing.T, format nip34.ObjectFormat) {
	f := fetcher(t)
	dir := bare(t, format)
	main := packed(t, dir, nip34.ObjectID{}, "main")
	bad, waits := packed(t, dir, main, "bad"), packed(t, dir, main, "waits")
	git(t, dir, "config", "core.logAllRefUpdates", "always")
	git(t, dir, "update-ref", "refs/heads/main", bad.String())
	git(t, dir, "update-ref", "refs/heads/main", main.String())
	loose := oid(t, gitIn(t, dir, "loose", "hash-object", "-w", "--stdin"))
	k := keeping(t, f, dir, waits)
	k.how.Now = true
	done := k.maintain()
	require.True(t, done.Pruned)
	require.Equal(t, 1, done.Packs)
	require.Positive(t, done.Freed)
	require.False(t, k.has(bad))
	require.False(t, k.has(loose))
	require.True(t, k.has(waits))
	git(t, dir, "fsck", "--strict")
	require.Equal(t, main.String(), git(t, dir, "rev-parse", "main"))
}

// Unnamed objects that get a ref, or that an event needs, while expired objects are removed, stay or
// are missing before the ref is set.
func TestNamedWhileItIsRemoved(t *testing.T) {
	for round := range 12 {
		f := fetcher(t)
		dir := bare(t, nip34.SHA1)
		main := packed(t, dir, nip34.ObjectID{}, "main")
		git(t, dir, "update-ref", "refs/heads/main", main.String())
		old := packed(t, dir, main, "old")
		gone := packed(t, dir, main, "gone")
		k := keeping(t, f, dir)
		k.later(15 * 24 * time.Hour)
		done := make(chan error)
		go func() {
			_, err := f.Maintain(t.Context(), k.how)
			done <- err
		}()
		time.Sleep(time.Duration(round) * 15 * time.Millisecond)
		k.lock.Lock()
		missing, err := f.Missing(t.Context(), dir, []nip34.ObjectID{old})
		require.NoError(t, err)
		if named := len(missing) == 0; named && round%2 == 0 {
			again := ref(t, "refs/heads/again")
			require.NoError(t, f.UpdateRefs(t.Context(), dir, []refplan.RefChange{{Name: again, New: old}}, nip34.RefName{}))
			require.NoError(t, f.Cleanup(t.Context(), dir))
		}
		k.lock.Unlock()
		require.NoError(t, <-done)
		require.Equal(t, len(missing) == 0, k.has(old), "round %d", round)
		require.False(t, k.has(gone))
		git(t, dir, "fsck", "--strict", "--connectivity-only")
	}
}

// Damaged data, or a git that fails or is killed at any step, leaves the repository unchanged.
func TestMaintenanceThatIsKilled(t *testing.T) {
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	for _, verb := range []string{"pack-refs", "reflog", "for-each-ref", "update-ref", "repack", "prune", "cat-file"} {
		t.Run(verb, func(t *testing.T) {
			script := filepath.Join(t.TempDir(), "git")
			require.NoError(t, os.WriteFile(script, fmt.Appendf(nil,
				"#!/bin/sh\ncase \" $* \" in *build-options*) ;; *' %s '*) kill -9 $$;; esac\nexec %s \"$@\"\n", verb, real), 0o700))
			bad, good := fetcher(t, gitfetch.Config{Git: script}), fetcher(t)
			dir := bare(t, nip34.SHA1)
			git(t, dir, "config", "core.logAllRefUpdates", "always")
			main := packed(t, dir, nip34.ObjectID{}, "main")
			for i := range fewRefs {
				git(t, dir, "update-ref", fmt.Sprintf("refs/heads/%d", i), main.String())
			}
			gone := packed(t, dir, main, "gone")
			git(t, dir, "update-ref", "refs/heads/0", gone.String())
			git(t, dir, "update-ref", "refs/heads/0", main.String())
			gitIn(t, dir, "loose", "hash-object", "-w", "--stdin")
			k := keeping(t, bad, dir, packed(t, dir, main, "waits"))
			_, err := bad.Maintain(t.Context(), k.how)
			require.Error(t, err)
			git(t, dir, "fsck", "--strict", "--connectivity-only")
			require.True(t, k.has(gone))
			require.Len(t, strings.Fields(git(t, dir, "for-each-ref", "--format=x", "refs/heads")), fewRefs)
			k.f = good
			k.how.Now = true
			done := k.maintain()
			require.Equal(t, 1, done.Packs)
			git(t, dir, "fsck", "--strict")
		})
	}
}

// The process is killed between any two steps of the swap. The repository is sound, and the next
// maintenance completes the work.
func TestSwapThatIsCutOff(t *testing.T) {
	for _, exts := range [][]string{{".idx"}, {".idx", ".pack"}} {
		f := fetcher(t)
		dir := bare(t, nip34.SHA1)
		main := packed(t, dir, nip34.ObjectID{}, "main")
		git(t, dir, "update-ref", "refs/heads/main", main.String())
		k := keeping(t, f, dir)
		old := strings.TrimSuffix(k.packs()[0], ".pack")
		packed(t, dir, nip34.ObjectID{}, "unnamed")
		gitIn(t, dir, main.String()+"\n", "pack-objects", "--revs", "--quiet", filepath.Join(dir, "objects/pack/pack"), "--no-reuse-object", "--compression=0")
		for _, ext := range exts {
			require.NoError(t, os.Remove(old+ext))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "objects/pack/tmp_pack_abcdef"), []byte("half"), 0o600))
		git(t, dir, "fsck", "--strict", "--connectivity-only")
		k.how.Now = true
		k.later(2 * leftAfter) // earlier, another process may be writing them
		k.maintain()
		entries, err := os.ReadDir(filepath.Join(dir, "objects/pack"))
		require.NoError(t, err)
		require.Len(t, entries, 4, "%v", entries) // with a bitmap and a reverse index
		git(t, dir, "fsck", "--strict")
	}
}

// Replaced data of pull requests stayed on disk for weeks, because it was pruned only every seven
// days, and reflogs and keep files protected it.
func TestPruneTakesWhatGaveWay(t *testing.T) {
	f := fetcher(t)
	dir := bare(t, nip34.SHA1)
	main := packed(t, dir, nip34.ObjectID{}, "main")
	was := len(keeping(t, f, dir).packs())
	gave := packed(t, dir, main, "gave way")
	moved := packed(t, dir, main, "a branch had it")
	git(t, dir, "update-ref", "refs/heads/main", main.String())
	k := keeping(t, f, dir)
	require.Equal(t, was+2, len(k.packs()))
	k.later(2 * time.Hour)
	young := packed(t, dir, main, "has just come")
	name := strings.Repeat("e", 64)
	for _, log := range []struct {
		ref string
		id  nip34.ObjectID
	}{{"refs/nostr/" + name, gave}, {"refs/heads/gone", moved}} {
		path := filepath.Join(dir, "logs", filepath.FromSlash(log.ref))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		line := fmt.Sprintf("%s %s a <a> %d +0000\tx\n", log.id, log.id, time.Now().Unix())
		require.NoError(t, os.WriteFile(path, []byte(line), 0o600))
	}
	for _, pack := range k.packs() {
		keep := strings.TrimSuffix(pack, ".pack") + ".keep"
		require.NoError(t, os.WriteFile(keep, []byte(keepNote), 0o600))
		old := time.Now().Add(-2 * time.Hour)
		require.NoError(t, os.Chtimes(keep, old, old))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, recordName), []byte(time.Now().Format(time.RFC3339)), 0o600))
	require.False(t, k.maintain().Pruned)
	k.how.Prune, k.how.Grace = true, time.Hour
	done := k.maintain()
	require.True(t, done.Pruned)
	require.False(t, k.has(gave))
	require.True(t, k.has(moved), "a log names it")
	require.True(t, k.has(young), "within its grace")
	require.Positive(t, done.Unnamed)
	k.how.Grace = 0
	done = k.maintain()
	require.False(t, k.has(young))
	require.Zero(t, done.Unnamed)
}

// Leftovers of killed processes are removed after an hour, complete data never. A crash during a
// promotion left a pack without index that was never removed.
func TestWhatIsLeftGoesAfterAnHour(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	goes := map[string]bool{
		"pack/pack-1.pack": true, "pack/pack-1.rev": true, "pack/pack-1.mtimes": true, "pack/pack-1.bitmap": true, "pack/pack-1.keep": false,
		"pack/pack-2.idx": false, "pack/pack-2.pack": false, "pack/pack-2.rev": false, "pack/pack-3.idx": true,
		"pack/tmp_pack_1": true, "pack/.tmp-2-pack-1.pack": true, "pack/other.pack": false, "pack/multi-pack-index": false,
		"tmp_objdir-1/x": true, "12/3": false, "tmp_other/x": true,
	}
	for age, old := range map[time.Duration]bool{59 * time.Minute: false, time.Hour: true} {
		dir := bare(t, nip34.SHA1)
		for name := range goes {
			path := filepath.Join(dir, "objects", name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			for _, p := range []string{path, filepath.Dir(path)} {
				require.NoError(t, os.Chtimes(p, now.Add(-age), now.Add(-age)))
			}
		}
		require.NoError(t, os.Chtimes(filepath.Join(dir, "objects", "tmp_objdir-1"), now.Add(-age), now.Add(-age)))
		if old {
			require.NoError(t, fetcher(t).Cleanup(t.Context(), dir))
		} else {
			require.NoError(t, fetcher(t).Repair(t.Context(), dir))
		}
		for name, left := range goes {
			_, err := os.Stat(filepath.Join(dir, "objects", name))
			require.Equal(t, old && left, errors.Is(err, fs.ErrNotExist), "%s after %v", name, age)
		}
	}
}
