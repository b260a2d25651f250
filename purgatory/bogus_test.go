package purgatory_test

import (
	"context"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/state"
)

// Pull requests with tips that no server has do not use up the rate limit of a server. With real
// git and a real server, states are released by the first attempt.
func TestTrapG7_BogusPullRequests(t *testing.T) {
	there := filepath.Join(t.TempDir(), "r.git")
	must := func(dir, stdin string, args ...string) string {
		cmd := userGit(dir, args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	must(t.TempDir(), "", "init", "-q", "--bare", "-b", "main", there)
	must(there, "", "config", "uploadpack.allowReachableSHA1InWant", "true")
	const commit = "commit refs/heads/main\ncommitter c <c@example.com> 1700000000 +0000\ndata 2\nhi\nM 100644 inline a/b\ndata 2\nhi\n"
	must(there, commit+commit, "fast-import", "--quiet")
	tip, below := must(there, "", "rev-parse", "main"), must(there, "", "rev-parse", "main^")
	backend := cgi.Handler{
		Path: filepath.Join(must(there, "", "--exec-path"), "git-http-backend"), Dir: there,
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(there), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"},
	}
	for _, version := range []string{"version=0", "version=2"} {
		t.Run(version, func(t *testing.T) {
			var requests atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				h := backend
				h.Env = append(h.Env[:len(h.Env):len(h.Env)], "GIT_PROTOCOL="+version)
				h.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			dialer, err := egress.NewDialer(egress.Config{AllowPlaintext: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
			require.NoError(t, err)
			git, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, MinFreeDisk: 1 << 20})
			require.NoError(t, err)
			t.Cleanup(git.Close)
			relay, repos := &relay{}, &folders{dir: t.TempDir(), one: make(map[graspsync.RepoRef]chan struct{})}
			cfg := purgatory.Config{Times: purgatory.Times{
				Backoff: time.Hour,
			}}.With(purgatory.Fixed{UserDelay: time.Second, SyncDelay: time.Second})
			p, err := purgatory.Open(t.Context(), relay, repos, git, state.NewMemory(), cfg)
			require.NoError(t, err)
			d, at := nostrTag{"d", "r"}, now()
			relay.put(alice.Event(at-500, graspsync.KindAnnouncement, "", d, nostrTag{"clone", server.URL + "/r.git"}))
			s := alice.Event(at, graspsync.KindState, "", d, nostrTag{"refs/heads/main", tip}, nostrTag{"refs/heads/old", below})
			for i := range 10 {
				_, err := p.Submit(t.Context(), eventtest.Of(pull(bob, repoOf(alice), i+1, graspsync.KindPullRequest)), graspsync.Source{Kind: graspsync.CatchUp})
				require.NoError(t, err)
			}
			_, err = p.Submit(t.Context(), eventtest.Of(s), graspsync.Source{Kind: graspsync.CatchUp})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			require.Eventually(t, func() bool { return relay.has(s) }, 30*time.Second, 10*time.Millisecond)
			require.LessOrEqual(t, requests.Load(), int64(4+2), "what the pull requests need may be asked for by now")
			cancel()
			<-ended
		})
	}
}
