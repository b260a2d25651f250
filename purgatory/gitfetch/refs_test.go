package gitfetch_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

func refsOf(t testing.TB, dir string) string {
	t.Helper()
	return git(t, dir, "for-each-ref", "--format=%(refname) %(objectname)") + "\n" + readFile(t, dir+"/HEAD")
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

// Old values of moved and deleted refs are protected for at least 30 days, with any garbage
// collection.
func TestPromiseP34_OldValuesAreKept(t *testing.T) {
	here := bare(t, nip34.SHA1)
	f := fetcher(t)
	tips := []nip34.ObjectID{history(t, here, "one", 1)[0], history(t, here, "two", 1)[0], history(t, here, "three", 1)[0]}
	one, two, three := ref(t, "refs/heads/one"), ref(t, "refs/heads/two"), ref(t, "refs/heads/three")
	git(t, here, "symbolic-ref", "HEAD", "refs/heads/three")
	require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{
		{Name: one, Old: tips[0], New: tips[2]}, {Name: two, Old: tips[1]},
	}, three))
	require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: one, Old: tips[2]}}, one)) // HEAD points to a missing branch
	git(t, here, "gc", "--quiet", "--prune=now")
	git(t, here, "cat-file", "-e", tips[1].String())
	git(t, here, "fsck", "--strict")
	require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: three, Old: tips[2], New: tips[1]}}, three))
	git(t, here, "gc", "--quiet", "--prune=now")
	git(t, here, "cat-file", "-e", tips[2].String())
}

// killer returns a git that stops its transaction at a step and dies like by kill -9.
func killer(t testing.TB, at string) string {
	path := filepath.Join(t.TempDir(), "git")
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	script := fmt.Sprintf(`#!/bin/sh
case "$*" in
*update-ref*)
	case %[2]s in
	before) kill -9 $$;;
	prepared) { tr '\0' '\n' | grep -v '^commit$' | tr '\n' '\0'; sleep 0.3; kill -9 -$$; } | exec %[1]s "$@";;
	after) %[1]s "$@"; kill -9 $$;;
	esac;;
*) exec %[1]s "$@";;
esac
`, real, at)
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

// Git is killed in a transaction. Repair and a second UpdateRefs complete it.
func TestPromiseP34_KilledInATransaction(t *testing.T) {
	for _, at := range []string{"before", "prepared", "after"} {
		here := bare(t, nip34.SHA1)
		ids := history(t, here, "main", 3)
		good, bad := fetcher(t), fetcher(t, gitfetch.Config{Git: killer(t, at)})
		main := ref(t, "refs/heads/main")
		var want []refplan.RefChange
		for i := range 20 {
			want = append(want, refplan.RefChange{Name: ref(t, fmt.Sprintf("refs/heads/b%d", i)), New: ids[i%3]})
		}
		before := refsOf(t, here)
		require.Error(t, bad.UpdateRefs(t.Context(), here, want, main), at)
		if at != "after" {
			require.Equal(t, before, refsOf(t, here), "none")
		}
		// An incomplete commit leaves some refs, locks of other refs, and an incomplete packed-refs
		// file.
		if at == "prepared" {
			require.NoError(t, os.WriteFile(here+"/refs/heads/b3", []byte(ids[0].String()+"\n"), 0o600))
			for _, name := range []string{"HEAD.lock", "packed-refs.lock", "packed-refs.new", "refs/heads/b7.lock", "config.lock"} {
				require.NoError(t, os.WriteFile(filepath.Join(here, name), nil, 0o600))
				age(t, filepath.Join(here, name), packingMost)
			}
			require.NoError(t, os.MkdirAll(here+"/graspsync-quarantine-0123-1/pack", 0o700))
		}
		require.NoError(t, good.Repair(t.Context(), here))
		require.Empty(t, leftovers(t, here))
		refs, err := good.Refs(t.Context(), here)
		require.NoError(t, err)
		var again []refplan.RefChange
		for _, c := range want {
			if c.Old = refs.At[c.Name]; c.Old != c.New {
				again = append(again, c)
			}
		}
		require.NoError(t, good.UpdateRefs(t.Context(), here, again, main), at)
		refs, err = good.Refs(t.Context(), here)
		require.NoError(t, err)
		for _, c := range want {
			require.Equal(t, c.New, refs.At[c.Name])
		}
		require.NoError(t, good.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: want[0].Name, Old: want[0].New}}, nip34.RefName{}), "packed-refs can be written")
		git(t, here, "fsck", "--strict")
	}
}

// age makes a file older.
func age(t testing.TB, path string, by time.Duration) {
	t.Helper()
	at := time.Now().Add(-by)
	require.NoError(t, os.Chtimes(path, at, at))
}

// An operator's pack-refs takes only the lock of packed-refs. Cleanup after a push removed that
// lock, and refs were lost.
func TestWhoPacksRefsKeepsHisLock(t *testing.T) {
	here := sample(t)
	f := fetcher(t)
	lock, fresh := filepath.Join(here, "packed-refs.lock"), filepath.Join(here, "packed-refs.new")
	for _, c := range []struct {
		clear func(context.Context, string) error
		age   time.Duration
		stays bool
	}{
		{f.Cleanup, 0, true},
		{f.Cleanup, time.Minute - 10*time.Second, true},
		{f.Cleanup, time.Minute + 100*time.Millisecond, false},
		{f.Repair, 2*time.Second - 100*time.Millisecond, false}, // after the rest of the time
		{f.Repair, 2*time.Second + time.Millisecond, false},
	} {
		require.NoError(t, os.WriteFile(lock, nil, 0o600))
		require.NoError(t, os.WriteFile(fresh, nil, 0o600))
		age(t, lock, c.age)
		require.NoError(t, c.clear(t.Context(), here))
		for _, path := range []string{lock, fresh} {
			_, err := os.Stat(path)
			require.Equal(t, c.stays, err == nil, "%s after %v", path, c.age)
		}
	}
	require.NoError(t, os.WriteFile(fresh, nil, 0o600))
	require.NoError(t, f.Cleanup(t.Context(), here))
	require.NoFileExists(t, fresh, "nobody has the lock")
}

// HEAD keeps its mode, and a held lock is respected.
func TestPromiseP34_Head(t *testing.T) {
	here := sample(t)
	f := fetcher(t)
	other := ref(t, "refs/heads/other")
	require.NoError(t, f.UpdateRefs(t.Context(), here, nil, other))
	require.Equal(t, "ref: refs/heads/other\n", readFile(t, here+"/HEAD"))
	require.NoError(t, os.WriteFile(here+"/HEAD.lock", nil, 0o600))
	require.NoError(t, f.UpdateRefs(t.Context(), here, nil, other), "it is there already")
	require.Error(t, f.UpdateRefs(t.Context(), here, nil, ref(t, "refs/heads/main")))
	require.Equal(t, "ref: refs/heads/other\n", readFile(t, here+"/HEAD"))
	require.Error(t, f.UpdateRefs(t.Context(), here, nil, ref(t, "refs/tags/x")), "no branch")
	require.NoError(t, os.Remove(here+"/HEAD"))
	_, err := f.Refs(t.Context(), here)
	require.Error(t, err)
	_, err = f.Refs(context.Background(), here+"/nowhere")
	require.Error(t, err)
}

// Refs that git can never set cause a specific error.
func TestUnfitRefs(t *testing.T) {
	dir := bare(t, nip34.SHA1)
	tip := history(t, dir, "main", 1)[0]
	tree := oid(t, strings.TrimSpace(git(t, dir, "rev-parse", tip.String()+"^{tree}")))
	f := fetcher(t)
	kinds, err := f.Stat(t.Context(), dir, []nip34.ObjectID{tip, tree})
	require.NoError(t, err)
	require.Equal(t, map[nip34.ObjectID]refplan.Kind{tip: refplan.Commit, tree: refplan.Tree}, kinds)
	a, b := ref(t, "refs/heads/a"), ref(t, "refs/heads/a/b")
	for _, changes := range [][]refplan.RefChange{
		{{Name: a, New: tree}},
		{{Name: a, New: tip}, {Name: b, New: tip}},
	} {
		require.ErrorIs(t, f.UpdateRefs(t.Context(), dir, changes, nip34.RefName{}), gitops.ErrInvalidRefs)
		refs, err := f.Refs(t.Context(), dir)
		require.NoError(t, err)
		require.Len(t, refs.At, 1)
	}
}

// If a ref that stays excludes a new ref, no other ref is deleted. Before, all deletions were made.
func TestConflictDeletesNothing(t *testing.T) {
	here := bare(t, nip34.SHA1)
	f := fetcher(t)
	tip := history(t, here, "one", 1)[0]
	git(t, here, "update-ref", "refs/heads/a/stays", tip.String())
	git(t, here, "update-ref", "refs/heads/a/goes", tip.String())
	git(t, here, "update-ref", "refs/heads/old", tip.String())
	before := refsOf(t, here)
	a, goes, old := ref(t, "refs/heads/a"), ref(t, "refs/heads/a/goes"), ref(t, "refs/heads/old")
	err := f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: a, New: tip}, {Name: old, Old: tip}}, a)
	require.ErrorIs(t, err, gitops.ErrChanged)
	require.Equal(t, before, refsOf(t, here))

	git(t, here, "update-ref", "-d", "refs/heads/a/stays")
	require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{{Name: a, New: tip}, {Name: goes, Old: tip}, {Name: old, Old: tip}}, a))
	require.Equal(t, "refs/heads/a "+tip.String()+"\nrefs/heads/one "+tip.String()+"\nref: refs/heads/a\n", refsOf(t, here))
}

// A symbolic ref of an operator can be moved and deleted. It had seemed to be absent, so that git
// refused each state that names it.
func TestSymbolicRefs(t *testing.T) {
	here := bare(t, nip34.SHA1)
	f := fetcher(t)
	tip, next := history(t, here, "main", 1)[0], history(t, here, "next", 1)[0]
	master, other := ref(t, "refs/heads/master"), ref(t, "refs/heads/other")
	git(t, here, "symbolic-ref", master.String(), "refs/heads/main")
	git(t, here, "symbolic-ref", other.String(), "refs/heads/main")
	refs, err := f.Refs(t.Context(), here)
	require.NoError(t, err)
	require.NoError(t, f.UpdateRefs(t.Context(), here, []refplan.RefChange{
		{Name: master, Old: refs.At[master], New: next}, {Name: other, Old: refs.At[other]},
	}, nip34.RefName{}))
	refs, err = f.Refs(t.Context(), here)
	require.NoError(t, err)
	require.Equal(t, map[nip34.RefName]nip34.ObjectID{
		ref(t, "refs/heads/main"): tip, ref(t, "refs/heads/next"): next, master: next,
	}, refs.At)
}
