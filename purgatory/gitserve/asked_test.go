package gitserve_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// configured changes the config of a repository, so that only git can read it.
func configured(t testing.TB, dir string) {
	t.Helper()
	text := barerepo.Config(nip34.SHA1) + "# by hand\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config"), []byte(text), 0o600))
}

// asking records the git commands that run.
func (r *rig) asking() (asked func() []string) {
	var mu sync.Mutex
	var commands []string
	r.git.SetStarted(func(cmd *exec.Cmd) {
		mu.Lock()
		defer mu.Unlock()
		for _, verb := range []string{"upload-pack", "receive-pack"} {
			if slices.Contains(cmd.Args, verb) {
				commands = append(commands, verb)
			}
		}
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		out := commands
		commands = nil
		return out
	}
}

var agents = regexp.MustCompile(` agent=[^ \n]*\n`)

// unsized removes the length of the first packet line of refs, because it depends on the agent's
// name.
func unsized(text string) string {
	text = agents.ReplaceAllString(text, "\n")
	i := strings.Index(text, "\x00")
	line := strings.LastIndexAny(text[:i], "\n") + 1
	if strings.HasPrefix(text[line:], "0000") {
		line += len("0000")
	}
	return text[:line] + text[line+4:]
}

// The ref advertisement for a push once needed three git processes. It must equal git's.
func TestWhatIsHereIsToldAsGitDoes(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	asked := r.asking()
	git(t, r.work, "tag", "-a", "-m", "x", "v1")
	tag := git(t, r.work, "rev-parse", "v1")
	ask := func(protocol string) string {
		t.Helper()
		resp, text := r.do(t, "GET", "/"+owner.Npub()+"/x.git/info/refs?service="+receivePack, "", "Git-Protocol", protocol)
		require.Equal(t, 200, resp.StatusCode)
		for name, want := range map[string]string{
			"Content-Type": "application/x-git-receive-pack-advertisement", "Cache-Control": "no-cache, max-age=0, must-revalidate",
			"Expires": "Fri, 01 Jan 1980 00:00:00 GMT", "Pragma": "no-cache",
		} {
			require.Equal(t, want, resp.Header.Get(name))
		}
		return text
	}
	same := func(has ...string) {
		t.Helper()
		for _, protocol := range []string{"", "version=0", "version=1", "version=2"} {
			ours := ask(protocol)
			require.Empty(t, asked())
			configured(t, r.dir())
			theirs := ask(protocol)
			require.Equal(t, []string{"receive-pack"}, asked())
			require.NoError(t, os.WriteFile(filepath.Join(r.dir(), "config"), []byte(barerepo.Config(nip34.SHA1)), 0o600))
			require.Equal(t, unsized(theirs), unsized(ours), protocol)
			for _, text := range has {
				require.Contains(t, ours, text)
			}
		}
	}
	same("capabilities^{}")
	refs := map[string]string{"refs/heads/main": r.tip, "refs/heads/a/b": r.tip, "refs/tags/v1": tag}
	r.says(refs)
	git(t, r.work, "push", "-q", r.repo(), "main", "main:a/b", "v1")
	require.Empty(t, asked())
	same(r.tip+" refs/heads/a/b\x00", tag+" refs/tags/v1\n")
	git(t, r.dir(), "--git-dir=.", "pack-refs", "--all")
	git(t, r.dir(), "--git-dir=.", "update-ref", "refs/nostr/"+event, r.tip)
	same(r.tip + " refs/nostr/" + event + "\n")
	missing := strings.Repeat("1", 40)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir(), "refs", "heads", "gone"), []byte(missing+"\n"), 0o600))
	same(missing)
}
