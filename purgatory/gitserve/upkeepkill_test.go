package gitserve_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
)

// Environment of the process that is killed during maintenance: an object that a waiting event
// names.
const envWaits = "GITSERVE_TEST_WAITS"

// maintainUntilKilled is the process that is killed.
func maintainUntilKilled() {
	if err := maintainOnce(context.Background(), os.Getenv(envServe), os.Getenv(envGit), os.Getenv(envWaits)); err != nil {
		panic(err)
	}
	os.Exit(0)
}

func maintainOnce(ctx context.Context, folder, program, waits string) error {
	repos, err := gitserve.Open(folder, gitserve.RepositoriesConfig{})
	if err != nil {
		return err
	}
	dialer, err := egress.NewDialer(egress.Config{})
	if err != nil {
		return err
	}
	f, err := gitfetch.New(ctx, gitfetch.Config{Dialer: dialer, Git: program, MinFreeDisk: 1})
	if err != nil {
		return err
	}
	defer f.Close()
	id, err := nip34.ParseObjectID(waits)
	if err != nil {
		return err
	}
	_, err = f.Maintain(ctx, gitops.Maintenance{
		Lock:  func(ctx context.Context) (string, func(), error) { return repos.Lock(ctx, owner.Ref("x")) },
		Keep:  func(context.Context) ([]nip34.ObjectID, error) { return []nip34.ObjectID{id}, nil },
		Grace: time.Hour, Remember: 30 * 24 * time.Hour,
	})
	return errors.Join(err, repos.Close())
}

// upkeep is a repository whose maintenance is killed.
type upkeep struct {
	folder, work, waits, young string
	refs                       string
}

func newUpkeep(t *testing.T) *upkeep {
	u := &upkeep{folder: filepath.Join(t.TempDir(), "git-data"), work: t.TempDir()}
	repos, err := gitserve.Open(u.folder, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	require.NoError(t, repos.Create(t.Context(), owner.Ref("x"), nip34.SHA1))
	require.NoError(t, repos.Close())
	dir := u.dir()
	git(t, u.work, "init", "-q", "-b", "main")
	commit := func(text string) string {
		git(t, u.work, "commit", "-q", "--allow-empty", "-m", text)
		git(t, u.work, "push", "-q", "--force", dir, "HEAD:refs/heads/main")
		return git(t, u.work, "rev-parse", "HEAD")
	}
	for i := range 3 {
		commit(fmt.Sprint(i))
	}
	tip := git(t, u.work, "rev-parse", "HEAD")
	u.waits = commit("named by an event that waits")
	git(t, u.work, "reset", "-q", "--hard", tip)
	u.young = commit("young, and not named")
	git(t, u.work, "reset", "-q", "--hard", tip)
	git(t, u.work, "push", "-q", "--force", dir, "HEAD:refs/heads/main")
	var names strings.Builder
	for i := range 70 {
		fmt.Fprintf(&names, "create refs/heads/b%d %s\n", i, tip)
	}
	cmd := exec.CommandContext(t.Context(), "git", "--git-dir="+dir, "update-ref", "--stdin")
	cmd.Stdin = strings.NewReader(names.String())
	require.NoError(t, cmd.Run())
	u.refs = git(t, dir, "for-each-ref", "refs/heads")
	return u
}

func (u *upkeep) dir() string { return filepath.Join(u.folder, hashed(owner.Ref("x"))) }

// maintain runs the process and kills it at the nth git run, either when git has only taken its
// locks, or after git ended. verb is the git command.
func (u *upkeep) maintain(t *testing.T, nth int, after bool) (verb string, killed bool) {
	t.Helper()
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	dir := t.TempDir()
	shim, count := filepath.Join(dir, "git"), filepath.Join(dir, "count")
	then := `case "$*" in
	*pack-refs*) echo x > packed-refs.lock; echo x > packed-refs.new; echo x > refs/heads/b1.lock;;
	*reflog*) echo x > refs/heads/main.lock; mkdir -p logs/refs/heads; echo x > logs/refs/heads/main.lock;;
	*repack*) echo x > objects/pack/.tmp-1-pack-0123.pack;;
	*pack-objects*) echo x > objects/pack/tmp_pack_AbCdEf; echo x > objects/pack/pack-0123.pack;;
	esac`
	if after {
		then = real + ` "$@" > /dev/null`
	}
	require.NoError(t, os.WriteFile(shim, fmt.Appendf(nil, `#!/bin/sh
case "$*" in *build-options*) exec %[1]s "$@";; esac
echo "$*" >> %[2]s
if [ $(wc -l < %[2]s) -eq %[3]d ]; then
%[4]s
kill -9 $PPID; exit 1
fi
exec %[1]s "$@"
`, real, count, nth, then), 0o700))
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envServe+"="+u.folder, envGit+"="+shim, envWaits+"="+u.waits)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err, "%s", out)
		return "", false
	}
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "%s", out)
	ran, err := os.ReadFile(count)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(ran)), "\n")
	words := strings.Fields(lines[len(lines)-1])
	for i := 1; i < len(words); i++ { // after --git-dir and settings
		if words[i] == "-c" {
			i++
			continue
		}
		return words[i], true
	}
	return "", true
}

// sound checks that all objects exist that a ref or waiting event names, or that are young.
func (u *upkeep) sound(t *testing.T) {
	t.Helper()
	git(t, u.dir(), "fsck", "--strict", "--connectivity-only")
	for _, id := range []string{u.waits, u.young} {
		git(t, u.dir(), "rev-list", "--objects", "--quiet", id)
	}
}

// A server killed during maintenance left ref locks, which blocked pushes for a minute or forever,
// and partial packs. Now a kill at any git run loses no needed object. The next server accepts
// pushes immediately, including the deletion of a branch, and the next maintenance removes all
// leftovers.
func TestKilledInMidMaintenance(t *testing.T) {
	racetest.Amounts(t)
	stride := 1
	if testing.Short() {
		stride = 5
	}
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after=%v", after), func(t *testing.T) {
			t.Parallel()
			for nth := 1; killMaintenance(t, nth, after); nth += stride {
			}
		})
	}
}

// killMaintenance kills the maintenance at the nth git run. It returns false if there are fewer
// runs.
func killMaintenance(t *testing.T, nth int, after bool) bool {
	u := newUpkeep(t)
	verb, killed := u.maintain(t, nth, after)
	if !killed {
		require.Greater(t, nth, 8, "there are more runs of git than that")
		return false
	}
	u.sound(t)
	require.Equal(t, u.refs, git(t, u.dir(), "for-each-ref", "refs/heads"), verb)
	began := time.Now()
	repos, err := gitserve.Open(u.folder, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	next := git(t, u.work, "commit-tree", "-p", "HEAD", "-m", "next", "HEAD^{tree}")
	h, err := gitserve.New(repos, &authority{refs: map[string]string{"refs/heads/main": next}}, gitserve.Config{MinFreeDisk: 1})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	out, err := try(t, u.work, "push", server.URL+"/"+owner.Npub()+"/x.git", next+":refs/heads/main", ":refs/heads/b1")
	server.Close()
	h.Close()
	require.NoError(t, repos.Close())
	require.NoError(t, err, "%s: %s", verb, out)
	t.Logf("killed at %d, %s: a push was taken %v after the restart", nth, verb, time.Since(began).Round(time.Millisecond))
	u.sound(t)
	u.none(t, "*.lock", "*/*/*.lock", "*/*/*/*.lock", "packed-refs.new")

	old := time.Now().Add(-2 * time.Hour)
	halves, err := filepath.Glob(filepath.Join(u.dir(), "objects/pack/*"))
	require.NoError(t, err)
	for _, path := range halves {
		if !strings.HasSuffix(path, ".mtimes") && (strings.Contains(path, "tmp") || strings.Contains(path, "pack-0123")) {
			require.NoError(t, os.Chtimes(path, old, old))
		}
	}
	require.NoError(t, os.RemoveAll(filepath.Join(u.dir(), "graspsync-maintenance"))) // otherwise it would wait for a week
	require.NoError(t, maintainOnce(t.Context(), u.folder, "git", u.waits))
	u.none(t, "objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/pack/pack-0123.*")
	u.sound(t)
	require.Equal(t, next, git(t, u.dir(), "rev-parse", "main"))
	return true
}

// none checks that no file matches the patterns.
func (u *upkeep) none(t *testing.T, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		left, err := filepath.Glob(filepath.Join(u.dir(), pattern))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// Refs that protect objects of waiting events are hidden from clients, and clients cannot push to
// them.
func TestHeldRefsAreHidden(t *testing.T) {
	u := newUpkeep(t)
	require.NoError(t, maintainOnce(t.Context(), u.folder, "git", u.waits))
	held := "refs/graspsync/held/" + u.waits
	require.Contains(t, git(t, u.dir(), "for-each-ref"), held)
	repos, err := gitserve.Open(u.folder, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	h, err := gitserve.New(repos, &authority{}, gitserve.Config{MinFreeDisk: 1})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	url := server.URL + "/" + owner.Npub() + "/x.git"
	for _, version := range []string{"0", "2"} {
		listed, err := try(t, u.work, "-c", "protocol.version="+version, "ls-remote", url)
		require.NoError(t, err, listed)
		require.Contains(t, listed, "refs/heads/main")
		require.NotContains(t, listed, "graspsync")
	}
	out, err := try(t, u.work, "push", url, "HEAD:"+held)
	require.Error(t, err, out)
	server.Close()
	h.Close()
	require.NoError(t, repos.Close())
	require.Contains(t, git(t, u.dir(), "for-each-ref"), u.waits+" commit\t"+held)
}
