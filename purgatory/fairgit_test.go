package purgatory_test

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

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// heavyGit is a purgatory with real git, in which walking histories takes ten seconds except for
// one owner.
type heavyGit struct {
	relay *relay
	repos *gitserve.Repositories
	p     *purgatory.Purgatory
}

func newHeavyGit(t *testing.T, quick *relaytest.Key) *heavyGit {
	script := filepath.Join(t.TempDir(), "git")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, `#!/bin/sh
case "$PWD $*" in
*%s*) ;;
*rev-list*) sleep 10 ;;
esac
exec git "$@"
`, quick.Hex()), 0o700))
	dialer, err := egress.NewDialer(egress.Config{})
	require.NoError(t, err)
	fetcher, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, MinFreeDisk: 1 << 20, Git: script})
	require.NoError(t, err)
	repos, err := gitserve.Open(t.TempDir(), gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	h := &heavyGit{relay: &relay{}, repos: repos}
	h.p, err = purgatory.Open(t.Context(), h.relay, repos, fetcher, state.NewMemory(), purgatory.Config{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.p.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
		fetcher.Close()
		require.NoError(t, repos.Close())
	})
	return h
}

// commit creates a commit without a ref, and the repository if necessary.
func (h *heavyGit) commit(t *testing.T, ref graspsync.RepoRef, message string) (dir, id string) {
	require.NoError(t, h.repos.Create(t.Context(), ref, nip34.SHA1))
	dir, unlock, err := h.repos.Lock(t.Context(), ref)
	require.NoError(t, err)
	defer unlock()
	run := func(stdin string, args ...string) string {
		cmd := userGit(dir, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	return dir, run("", "commit-tree", "-m", message, run("", "mktree"))
}

func (h *heavyGit) hold(t *testing.T, evs ...*nostrEvent) {
	for _, ev := range evs {
		answer, err := h.p.Submit(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp})
		require.NoError(t, err)
		require.Equal(t, purgatory.Held, answer.Decision)
	}
}

// With real git: three owners with the same identifier and one key with twelve repositories have
// histories that exceed the time budget. An owner with complete data is served in time.
func TestHeavyTreesWithRealGit(t *testing.T) {
	racetest.Amounts(t)
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal(err)
	}
	victim := relaytest.NewKey("v1")
	h := newHeavyGit(t, victim)
	at := now()
	named := func(key *relaytest.Key, kind int, at nostrTime, identifier string, tags ...nostrTag) *nostrEvent {
		return key.Event(at, kind, "", append([]nostrTag{{"d", identifier}}, tags...)...)
	}
	release := func(at nostrTime, message string) time.Duration {
		_, id := h.commit(t, repoOf(victim), message)
		s := named(victim, graspsync.KindState, at, "r", nostrTag{"refs/heads/main", id})
		began := time.Now()
		h.hold(t, s)
		require.Eventually(t, func() bool { return h.relay.has(s) }, time.Minute, 5*time.Millisecond)
		return time.Since(began)
	}
	h.relay.put(announce(victim, at-100))
	alone := release(at, "alone")
	attack := func(key *relaytest.Key, identifier string) {
		ref := key.Ref(identifier)
		_, id := h.commit(t, ref, "heavy")
		h.hold(t, named(key, graspsync.KindAnnouncement, at, identifier),
			named(key, graspsync.KindState, at, identifier, nostrTag{"refs/heads/main", id}))
	}
	for _, seed := range []string{"a3", "a4", "a2"} {
		attack(relaytest.NewKey(seed), "r")
	}
	for i := range 12 {
		attack(relaytest.NewKey("many"), fmt.Sprint("m", i))
	}
	beside := release(at+1, "beside")
	later := release(at+2, "later")
	t.Logf("alone %v, beside 15 heavy repositories %v and %v", alone.Round(time.Millisecond), beside.Round(time.Millisecond), later.Round(time.Millisecond))
	require.LessOrEqual(t, beside, alone+10*time.Second)
	require.LessOrEqual(t, later, alone+10*time.Second)
}
