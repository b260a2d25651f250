//go:build !race

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// try runs git as a user would.
func try(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := try(t, dir, args...)
	require.NoError(t, err, "git %v: %s", args, out)
	return out
}

// newWork makes a repository of somebody who works.
func newWork(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	commit(t, dir, "first")
	return dir
}

// commit commits a change and returns its id.
func commit(t *testing.T, dir, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o600))
	git(t, dir, "add", "file")
	git(t, dir, "commit", "-q", "-m", text)
	return git(t, dir, "rev-parse", "HEAD")
}

// refs returns the branches and tags of a repository as a state has them.
func refs(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for line := range strings.Lines(git(t, dir, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		out[name] = id
	}
	return out
}

// served reports whether a relay has an event.
func served(t *testing.T, addr string, ev *nostr.Event) bool {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	require.NoError(t, c.Send(t.Context(), wire.Request{Type: wire.TypeReq, Sub: "x", Filters: []nostr.Filter{{IDs: []string{ev.ID}}}}))
	for {
		m, err := c.Receive(t.Context())
		require.NoError(t, err)
		switch m.Type {
		case wire.TypeEvent:
			return true
		case wire.TypeEOSE:
			return false
		}
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 2*time.Minute, 50*time.Millisecond, what)
}

// hold publishes an event that has to wait for its git data.
func hold(t *testing.T, addr string, evs ...*nostr.Event) {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	for _, ev := range evs {
		require.NoError(t, c.Send(t.Context(), wire.Request{Type: wire.TypePublish, Event: ev}))
		require.Equal(t, purgatory.Message, await(t, c, wire.TypeNotice).Text)
		require.True(t, await(t, c, wire.TypeOK).Accepted)
	}
	for _, ev := range evs {
		require.False(t, served(t, addr, ev))
	}
}

// Two servers, real git: what is announced on one and pushed to it is served there,
// then by the other, with its data; also what came while that one was away. Only what
// the state says can be pushed.
func TestGit(t *testing.T) {
	aAddr, bAddr := freeAddr(t), freeAddr(t)
	aURL, err := graspsync.ParseRelayURL("ws://" + aAddr)
	require.NoError(t, err)
	_, stopA := server(t, options{Listen: aAddr, Domain: aAddr})
	atB := options{Listen: bAddr, Domain: bAddr, Bootstrap: []graspsync.RelayURL{aURL}, Data: t.TempDir()}
	_, stopB := server(t, atB)
	defer stopA()
	owner := relaytest.NewKey("owner")
	const name = "a repo: ünter/way"
	onA, onB := owner.CloneURL("ws://"+aAddr, name), owner.CloneURL("ws://"+bAddr, name)

	work := newWork(t)
	commit(t, work, "second")
	git(t, work, "tag", "-a", "-m", "x", "v1")
	git(t, work, "branch", "feature/x", "HEAD~1")
	ann := owner.Hosted(nostr.Now()-100, name, "ws://"+aAddr, "ws://"+bAddr)
	state := owner.State(nostr.Now()-90, name, refs(t, work), "main")
	hold(t, aAddr, ann, state)
	out, err := try(t, work, "push", onA, "HEAD:refs/heads/other")
	require.Error(t, err)
	require.Contains(t, out, "the newest state event says otherwise")
	require.False(t, served(t, aAddr, state))
	git(t, work, "push", "-q", onA, "--all")
	git(t, work, "push", "-q", onA, "--tags")
	eventually(t, "released by the push", func() bool { return served(t, aAddr, ann) && served(t, aAddr, state) })
	eventually(t, "released by the other", func() bool { return served(t, bAddr, ann) && served(t, bAddr, state) })
	for _, url := range []string{onA, onB} {
		clone := t.TempDir()
		git(t, clone, "clone", "-q", "--mirror", url, "x")
		clone = filepath.Join(clone, "x")
		require.Equal(t, refs(t, work), refs(t, clone))
		require.Equal(t, "refs/heads/main", git(t, clone, "symbolic-ref", "HEAD"))
		git(t, clone, "fsck", "--strict")
	}

	// A pull request, whose data comes before it.
	fork := t.TempDir()
	git(t, fork, "clone", "-q", onB, "x")
	fork = filepath.Join(fork, "x")
	stranger := relaytest.NewKey("stranger")
	tip := commit(t, fork, "better")
	pr := stranger.PullRequest(nostr.Now()-50, owner.Ref(name), "better", tip, onA)
	git(t, fork, "push", "-q", onA, "HEAD:refs/nostr/"+pr.ID)
	c := dial(t, aAddr)
	require.True(t, publish(t, c, pr).Accepted)
	eventually(t, "the pull request", func() bool { return served(t, aAddr, pr) && served(t, bAddr, pr) })
	require.Contains(t, git(t, fork, "ls-remote", onB), tip+"\trefs/nostr/"+pr.ID)
	commit(t, fork, "worse")
	out, err = try(t, fork, "push", "-f", onA, "HEAD:refs/nostr/"+pr.ID)
	require.Error(t, err)
	require.Contains(t, out, "the event with this id names another commit")
	out, err = try(t, fork, "push", onA, "HEAD:main")
	require.Error(t, err)
	require.Contains(t, out, "the newest state event says otherwise")
	require.Equal(t, git(t, work, "rev-parse", "main"), strings.Fields(git(t, work, "ls-remote", onA, "main"))[0])

	// While B is away the branch moves on, and another goes.
	stopB()
	commit(t, work, "third")
	git(t, work, "branch", "-D", "feature/x")
	next := owner.State(nostr.Now()-10, name, refs(t, work), "main")
	hold(t, aAddr, next)
	git(t, work, "push", "-q", onA, "main")
	eventually(t, "the next state", func() bool { return served(t, aAddr, next) })
	_, stopB = server(t, atB)
	defer stopB()
	eventually(t, "the next state after a restart", func() bool { return served(t, bAddr, next) && !served(t, bAddr, state) })
	mirror := t.TempDir()
	git(t, mirror, "clone", "-q", "--mirror", onB, "x")
	require.Equal(t, refs(t, work), refs(t, filepath.Join(mirror, "x")))

	require.Contains(t, get(t, "http://"+aAddr+"/", "Accept", "application/nostr+json"), `"supported_grasps":["GRASP-01","GRASP-02"]`)
	require.Contains(t, get(t, "http://"+bAddr+"/metrics"), "purgatory_sync_attempts_total")
}
