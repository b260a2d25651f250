package graspadapter_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/gate"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
	"github.com/graspsync/graspsync/adapter/statuspage"
	"github.com/graspsync/graspsync/internal/doctest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// operators returns the status page with explanations, metrics and commands. It asks for no
// password, so serve it on loopback only. Commands of the owner are signed (NIP-86).
func operators(server *graspadapter.Server, owner graspsync.PubKey) (http.Handler, error) {
	commands, err := admin.New(server.Control(), admin.Config{
		Owners: []graspsync.PubKey{owner}, URLs: []string{"http://127.0.0.1:7335"},
	})
	if err != nil {
		return nil, err
	}
	page, err := statuspage.New(statuspage.Config{
		Name: "grasp.example.com", Sync: server.Sync().Manager(), Purgatory: server.Purgatory(),
		Ready: server.Ready, Explain: server.Explain,
	})
	if err != nil {
		return nil, err
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(server.Collector("ngit"))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("/", commands.Middleware(page))
	return mux, nil
}

// A status page and metrics for the operator of a server, at an address of its own. It ends with
// the server, and the server ends if the address is in use.
func Example_operators() {
	serve := func(ctx context.Context, owner graspsync.PubKey, server *graspadapter.Server, door *gate.Gate) error {
		mux, err := operators(server, owner)
		if err != nil {
			return err
		}
		return gate.ListenAndServe(ctx, "127.0.0.1:3334", door, func(ctx context.Context) error {
			return gate.ListenAndServe(ctx, "127.0.0.1:7335", mux, server.Run)
		})
	}
	_ = serve
}

// Code and page explain an event in any spelling, and the page serves metrics.
func TestOperators(t *testing.T) {
	p, listener := open(t)
	server, err := graspadapter.Open(t.Context(), p.grasp, p.db, p.addr, p.dir)
	require.NoError(t, err)
	door := gate.New(p.relay, gate.Config{})
	server.Sync().Pace(door.Wait)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gate.Serve(ctx, listener, door, server.Run) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
		door.Close()
		require.NoError(t, server.Close())
	}()
	alice := relaytest.NewKey("alice")
	announcement := alice.Hosted(gonostr.Now()-9, "repo", "ws://"+p.addr)
	require.NoError(t, p.publish(announcement))

	x, err := server.Explain(ctx, announcement.ID)
	require.NoError(t, err)
	require.Equal(t, "held", x.Is)
	require.Contains(t, x.String(), "waits for git data")
	x, err = server.Explain(ctx, alice.Npub()+"/repo")
	require.NoError(t, err)
	require.Equal(t, alice.Ref("repo"), x.Repository.Ref)
	require.NotNil(t, x.Data)
	require.NotNil(t, x.Git)
	x, err = server.Explain(ctx, "wss://nobody.example")
	require.NoError(t, err)
	require.Equal(t, "not followed", x.Is)
	_, err = server.Explain(ctx, "what?")
	require.Error(t, err)

	owner := relaytest.NewKey("owner")
	mux, err := operators(server, owner.PubKey())
	require.NoError(t, err)
	ask := func(path string) string {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code, path)
		return w.Body.String()
	}
	require.Contains(t, ask("/explain?q="+announcement.ID), "waits for git data")
	require.Contains(t, ask("/metrics"), "ngit_sync_")
	require.Contains(t, ask("/metrics"), "\npurgatory_waiting{", "as the dashboard has it")
	for _, part := range []string{"rules", "gitserve", "git", "staging"} {
		require.Contains(t, ask("/metrics"), "\nngit_"+part+"_")
	}
	require.Eventually(t, func() bool { return server.Ready(ctx) == nil }, soon, 10*time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(ask("/metrics"), "\nngit_server_ready 1\n") }, soon, 100*time.Millisecond)
	incoming := filepath.Join(p.dir, "git", "incoming")
	require.NoError(t, os.RemoveAll(incoming))
	require.NoError(t, os.WriteFile(incoming, nil, 0o600)) // works for root too, who can write anywhere except below a file
	require.Eventually(t, func() bool {
		err := server.Ready(ctx)
		return err != nil && strings.Contains(err.Error(), "writing to the folder of repositories")
	}, soon, 100*time.Millisecond)
	require.NoError(t, os.Remove(incoming))
	require.NoError(t, os.Mkdir(incoming, 0o700))

	command := func(k *relaytest.Key) (status int) {
		body := `{"method":"banpubkey","params":["` + alice.Hex() + `","spam"]}`
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		// Commands signed in the first minute are ignored, because an earlier process may have
		// executed them.
		authorization, err := admin.Authorize(k.Secret(), "http://127.0.0.1:7335", http.MethodPost, []byte(body), time.Now().Add(time.Minute))
		require.NoError(t, err)
		r.Header = http.Header{"Authorization": {authorization}, "Content-Type": {admin.ContentType}}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusForbidden, command(alice))
	require.Eventually(t, func() bool { return command(owner) == http.StatusOK }, soon, 100*time.Millisecond)
	require.ErrorContains(t, p.publish(alice.Hosted(gonostr.Now(), "other", "ws://"+p.addr)), "blocked: this server takes nothing by this author")
	require.Empty(t, server.Purgatory().Status().Waiting)
}

// The README contains the functions above.
func TestReadmeShowsTheOperators(t *testing.T) {
	doctest.ContainsCode(t, "../README.md", "example_operators_test.go", "func operators(", "\n// ")
	doctest.ContainsCode(t, "../README.md", "example_operators_test.go", "\tmux, err := ", "\t}\n\t_ = serve")
}
