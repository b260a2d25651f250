// Package gittest runs git as a user would, for tests.
package gittest

import (
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Run runs git in a folder and returns its output without outer white space.
func Run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := Try(t, dir, args...)
	require.NoError(t, err, "git %v: %s", args, out)
	return out
}

// Try is like Run, but returns the error of git.
func Try(t testing.TB, dir string, args ...string) (string, error) {
	return Input(t, dir, "", args...)
}

// Input is like Try, with text as standard input. Git has no configuration but that of the
// repository.
func Input(t testing.TB, dir, text string, args ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(text)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// Pack returns a pack of revisions of a repository.
func Pack(t testing.TB, dir string, revisions ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "pack-objects", "--stdout", "--revs", "-q")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(strings.Join(revisions, "\n")+"\n")
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// Backend serves the repositories of a folder with git http-backend, also to push.
func Backend(t testing.TB, dir string) http.Handler {
	t.Helper()
	git, err := exec.LookPath("git")
	require.NoError(t, err)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(&cgi.Handler{
			Path: git, Args: []string{"http-backend"}, Dir: dir, Stderr: io.Discard,
			Env: []string{
				"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
				"GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"), "HOME=" + dir,
			},
		}).ServeHTTP(w, r)
	})
}
