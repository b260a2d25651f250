package gitserve_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// TestMain creates the folders of tests in memory if possible, like in package gitfetch.
func TestMain(m *testing.M) {
	if _, err := os.Stat("/dev/shm"); err == nil {
		_ = os.Setenv("TMPDIR", "/dev/shm") // otherwise they are on disk
	}
	if os.Getenv(envWaits) != "" {
		maintainUntilKilled()
	}
	if os.Getenv(envServe) != "" {
		serveUntilKilled()
		return
	}
	goleak.VerifyTestMain(m)
}

func newRepositories(t testing.TB) *gitserve.Repositories {
	t.Helper()
	return repositoriesWith(t, gitserve.RepositoriesConfig{})
}

func repositoriesWith(t testing.TB, cfg gitserve.RepositoriesConfig) *gitserve.Repositories {
	t.Helper()
	r, err := gitserve.Open(filepath.Join(t.TempDir(), "git"), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		if !t.Failed() {
			r.CheckIdle(t)
		}
		require.NoError(t, r.Close())
	})
	return r
}

var owner = relaytest.NewCheapKey("owner")

func TestCreateAndRemove(t *testing.T) {
	r := newRepositories(t)
	ref := owner.Ref("x")
	_, _, err := r.Lock(t.Context(), ref)
	require.ErrorIs(t, err, purgatory.ErrNoRepository)
	require.NoError(t, r.Leave(t.Context(), ref), "there is none")
	require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
	dir, unlock, err := r.Lock(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, "true", git(t, dir, "rev-parse", "--is-bare-repository"))
	require.Equal(t, "sha1", git(t, dir, "rev-parse", "--show-object-format"))
	git(t, dir, "fsck")
	unlock()

	// Created again with another format while it is empty.
	require.NoError(t, r.Create(t.Context(), ref, nip34.SHA256))
	require.Equal(t, "sha256", git(t, dir, "rev-parse", "--show-object-format"))
	head := git(t, dir, "commit-tree", "-m", "x", git(t, dir, "hash-object", "-w", "-t", "tree", "/dev/null"))
	git(t, dir, "update-ref", "refs/heads/main", head)
	require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1), "it has refs, and stays")
	require.Equal(t, "sha256", git(t, dir, "rev-parse", "--show-object-format"))
	git(t, dir, "pack-refs", "--all")
	require.NoError(t, r.Leave(t.Context(), ref))
	require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1), "its refs are packed")
	config := filepath.Join(dir, "config")
	require.NoError(t, os.Rename(config, config+".lost"))
	require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
	require.NoError(t, os.Rename(config+".lost", config))
	require.Equal(t, head, git(t, dir, "rev-parse", "refs/heads/main"), "a damaged repository is not thrown away")
	git(t, dir, "update-ref", "-d", "refs/heads/main")
	require.NoError(t, r.Leave(t.Context(), ref), "it is deleted")
	require.NoDirExists(t, dir)
	require.NoDirExists(t, filepath.Dir(dir), "its owner has no other")
}

// Paths contain no text of users, and no two repositories share a path, for any case folding and
// Unicode normalization of the file system.
func TestPromiseP8_Paths(t *testing.T) {
	r := newRepositories(t)
	places := make(map[string]bool)
	for _, name := range []string{
		"x", "X", "..", ".", "../../etc", "a/b", "a\\b", "x.git", "x.", "-rf", "\u00e4", "a\u0308", "con", "x:y", strings.Repeat("x", graspsync.MaxIdentifier),
	} {
		ref := owner.Ref(name)
		require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1), name)
		require.Regexp(t, `^[0-9a-f]{64}/[0-9a-f]{40}\.git$`, hashed(ref))
		places[strings.ToLower(hashed(ref))] = true
	}
	require.Len(t, places, 15)
	top, err := os.ReadDir(r.Dir())
	require.NoError(t, err)
	require.Len(t, top, 4, "and what is not there yet, staged, or out of service")
	up, err := os.ReadDir(filepath.Dir(r.Dir()))
	require.NoError(t, err)
	require.Len(t, up, 1)
}

// A repository is complete after a power failure, and a confirmed push is durable: folders are
// synced before the confirmation.
func TestFoldersAreOnTheDisk(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	var flushed []string
	var broken string
	r.repos.SetFlush(func(f *os.File) error {
		name, err := filepath.Rel(r.repos.Dir(), f.Name())
		require.NoError(t, err)
		if flushed = append(flushed, name); name == broken {
			return os.ErrDeadlineExceeded
		}
		return f.Sync()
	})
	ref := owner.Ref("y")
	require.NoError(t, r.repos.Create(t.Context(), ref, nip34.SHA1))
	tmp := filepath.Dir(flushed[0])
	require.ElementsMatch(t, []string{tmp + "/HEAD", tmp + "/config", tmp + "/description"}, flushed[:3])
	require.Equal(t, []string{tmp + "/objects", tmp + "/refs", tmp, owner.Hex(), "."}, flushed[3:])
	require.NoError(t, filepath.WalkDir(r.repos.Dir(), func(name string, d os.DirEntry, err error) error {
		if info, ierr := d.Info(); err == nil && ierr == nil && name != r.repos.Dir() {
			require.Zero(t, info.Mode()&0o077, name)
		}
		return err
	}))
	for i := range len(flushed) {
		ref := owner.Ref(fmt.Sprint(i))
		broken, flushed = "", nil
		r.repos.SetFlush(func(f *os.File) error {
			if flushed = append(flushed, f.Name()); len(flushed) == i+1 {
				return os.ErrDeadlineExceeded
			}
			return nil
		})
		require.ErrorIs(t, r.repos.Create(t.Context(), ref, nip34.SHA1), os.ErrDeadlineExceeded, i)
		_, _, err := r.repos.Lock(t.Context(), ref)
		require.ErrorIs(t, err, purgatory.ErrNoRepository, i)
	}

	r.says(map[string]string{"refs/heads/a/b": r.tip, "refs/tags/v1": r.tip})
	flushed = nil
	r.repos.SetFlush(func(f *os.File) error {
		name, err := filepath.Rel(r.dir(), f.Name())
		require.NoError(t, err)
		flushed = append(flushed, regexp.MustCompile("pack-[0-9a-f]+").ReplaceAllString(name, "pack-x"))
		return nil
	})
	git(t, r.work, "push", "-q", r.repo(), "main:a/b", "main:refs/tags/v1")
	require.ElementsMatch(t, []string{
		"objects/pack/pack-x.keep", "objects/pack", "refs/heads/a", "refs/heads", "refs/tags", "refs", ".",
		"logs/refs/heads/a", "logs/refs/heads", "logs/refs/tags", "logs/refs", "logs",
	}, flushed)
}

// Open removes incomplete data of a crash, and keeps complete data.
func TestOpenClears(t *testing.T) {
	dir := t.TempDir()
	r, err := gitserve.Open(dir, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	require.NoError(t, r.Create(t.Context(), owner.Ref("x"), nip34.SHA1))
	require.NoError(t, r.Close())
	require.NoError(t, os.Mkdir(filepath.Join(dir, incoming, "7"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, incoming, "7", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600))
	r, err = gitserve.Open(dir, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	left, err := os.ReadDir(filepath.Join(dir, incoming))
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, r.Create(t.Context(), owner.Ref("y"), nip34.SHA1))
	_, unlock, err := r.Lock(t.Context(), owner.Ref("x"))
	require.NoError(t, err)
	unlock()
}

// Locks of a push that was killed while it changed packed refs do not block later pushes.
func TestLocksOfAKilledPush(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	r.says(map[string]string{"refs/heads/x": r.tip})
	left := []string{"packed-refs.lock", "packed-refs.new", "HEAD.lock", "refs/heads/x.lock"}
	for _, name := range left {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir(), name), nil, 0o600))
	}
	git(t, r.work, "push", "-q", r.repo(), "main:x")
	for _, name := range left {
		require.NoFileExists(t, filepath.Join(r.dir(), name))
	}
	for _, name := range left {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir(), name), nil, 0o600))
	}
	r.says(map[string]string{"refs/heads/y": r.tip})
	git(t, r.work, "push", "-q", r.repo(), ":x")
}

// A push that waited for a slot detects that the repository was removed.
func TestRepositoryLeavesBeforeItsTurn(t *testing.T) {
	r := newRig(t, gitserve.Config{MaxPushes: 1})
	empty := r.git.Fill("push")
	ended := make(chan string)
	go func() {
		_, text := r.do(t, "POST", "/"+owner.Npub()+"/x.git/git-receive-pack", r.allowed()+string(packOf()))
		ended <- text
	}()
	require.Eventually(t, func() bool { return r.count(t, "waiting", "push", "run") == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, r.repos.Leave(t.Context(), owner.Ref("x")))
	empty()
	require.Contains(t, <-ended, "unpack no such repository: ")
}

// Expiry deleted a repository with refs, or during a push. A retired repository is not accessible, and Create restores it unchanged. It is deleted after
// some time, also over restarts.
func TestTrapP2_Retire(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "git")
	r, err := gitserve.Open(dir, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	x, y := owner.Ref("x"), owner.Ref("y")
	heads := make(map[graspsync.RepoRef]string)
	for _, ref := range []graspsync.RepoRef{x, y} {
		require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
		at, unlock, err := r.Lock(t.Context(), ref)
		require.NoError(t, err)
		heads[ref] = git(t, at, "commit-tree", "-m", "x", git(t, at, "hash-object", "-w", "-t", "tree", "/dev/null"))
		git(t, at, "update-ref", "refs/heads/main", heads[ref])
		unlock()
	}
	owned := func(who graspsync.PubKey) (out []graspsync.RepoRef) {
		for ref, err := range r.Owned(t.Context(), who) {
			require.NoError(t, err)
			out = append(out, ref)
		}
		return out
	}
	require.ElementsMatch(t, []graspsync.RepoRef{x, y}, owned(owner.PubKey()))
	require.ElementsMatch(t, []graspsync.RepoRef{x, y}, owned(graspsync.PubKey{}))
	require.Empty(t, owned(relaytest.NewCheapKey("somebody").PubKey()))

	_, unlock, err := r.Lock(t.Context(), x)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, r.Leave(short, x), context.DeadlineExceeded, "somebody pushes")
	unlock()
	for _, ref := range []graspsync.RepoRef{x, y} {
		require.NoError(t, r.Leave(t.Context(), ref))
		require.NoError(t, r.Leave(t.Context(), ref), "it is not there")
		_, _, err = r.Lock(t.Context(), ref)
		require.ErrorIs(t, err, purgatory.ErrNoRepository)
	}
	require.Empty(t, owned(graspsync.PubKey{}))
	require.NoDirExists(t, filepath.Join(dir, owner.Hex()), "nor is a folder of its owner")

	require.NoError(t, r.Close())
	r, err = gitserve.Open(dir, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	require.NoError(t, r.DeleteRetired(t.Context(), time.Now().Add(-time.Hour)))
	require.NoError(t, r.Create(t.Context(), x, nip34.SHA1))
	at, unlock, err := r.Lock(t.Context(), x)
	require.NoError(t, err)
	require.Equal(t, heads[x], git(t, at, "rev-parse", "main"))
	git(t, at, "fsck", "--strict")
	require.NoFileExists(t, filepath.Join(at, "departed"))
	unlock()
	note := filepath.Join(dir, "departed", hashed(y), "description")
	require.NoError(t, os.WriteFile(note, []byte("changed by an operator"), 0o600))
	require.NoError(t, r.DeleteRetired(t.Context(), time.Now().Add(time.Hour)))
	entries, err := os.ReadDir(filepath.Join(dir, "departed"))
	require.NoError(t, err)
	require.Empty(t, entries)
	require.Equal(t, []graspsync.RepoRef{x}, owned(graspsync.PubKey{}))
	require.NoError(t, r.Create(t.Context(), y, nip34.SHA1))
	at, unlock, err = r.Lock(t.Context(), y)
	require.NoError(t, err)
	require.Empty(t, git(t, at, "for-each-ref"), "it was made anew")
	unlock()

	require.NoError(t, r.Delete(t.Context(), x))
	require.NoError(t, r.Delete(t.Context(), x), "it is not there")
	entries, err = os.ReadDir(filepath.Join(dir, "departed"))
	require.NoError(t, err)
	require.Empty(t, entries)
	require.Equal(t, []graspsync.RepoRef{y}, owned(graspsync.PubKey{}))
}

// An invalid configuration opens nothing, and the error names each field.
func TestOpenNamesWhatCanNotBeUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "git")
	_, err := gitserve.Open(dir, gitserve.RepositoriesConfig{Git: "/nonexistent", StageHold: -1, MaxStaged: -1, MaxBytes: -1})
	require.ErrorIs(t, err, gitserve.ErrConfig)
	for _, name := range []string{"Git", "StageHold", "MaxStaged", "MaxBytes"} {
		require.ErrorContains(t, err, name)
	}
	require.NoDirExists(t, dir)
}
