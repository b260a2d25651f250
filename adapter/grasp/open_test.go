// khatru goes through its subscriptions while others open and close theirs: a race of its own.

//go:build !race

package grasp_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// opened is a server started with Open.
type opened struct {
	server  *grasp.Server
	address string
	stop    func()
}

func open(t *testing.T, folder string, bootstrap ...string) opened {
	t.Helper()
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := opened{address: listener.Addr().String()}
	server, err := grasp.Open(t.Context(), khatru.NewRelay(), db, o.address, folder, bootstrap...)
	require.NoError(t, err)
	o.server = server
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- gate.Serve(ctx, listener, server.Handler(), server.Run) }()
	o.stop = func() {
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, server.Close())
		db.Close()
	}
	return o
}

func supportedNIPs(t *testing.T, address string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "application/nostr+json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var document struct {
		NIPs json.RawMessage `json:"supported_nips"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&document))
	return string(document.NIPs)
}

// A repository pushed to one server is synced by another that knows only its URL.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		args = append([]string{"-C", dir, "-c", "user.name=alice", "-c", "user.email=alice@example.com"}, args...)
		out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
		return strings.TrimSpace(string(out))
	}
	first := open(t, filepath.Join(dir, "first"))
	defer first.stop()
	second := open(t, filepath.Join(dir, "second"), "ws://"+first.address)
	defer second.stop()

	nips := strings.Split(strings.Trim(supportedNIPs(t, first.address), "[]"), ",")
	require.ElementsMatch(t, strings.Split("1,9,11,34,40,42,62,70,77", ","), nips, "86 is not served")

	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "one")
	client, err := nostr.RelayConnect(t.Context(), "ws://"+first.address)
	require.NoError(t, err)
	defer client.Close()
	alice := relaytest.NewKey("alice")
	require.NoError(t, client.Publish(t.Context(), *alice.Hosted(nostr.Now(), "repo", "ws://"+first.address, "ws://"+second.address)))
	require.NoError(t, client.Publish(t.Context(), *alice.State(nostr.Now(), "repo", map[string]string{"refs/heads/main": git("rev-parse", "main")}, "main")))
	path := "/" + alice.Npub() + "/repo.git"
	git("push", "-q", "http://"+first.address+path, "main")

	require.Eventually(t, func() bool {
		out, err := exec.CommandContext(t.Context(), "git", "ls-remote", "http://"+second.address+path, "refs/heads/main").CombinedOutput()
		return err == nil && strings.HasPrefix(string(out), git("rev-parse", "main"))
	}, time.Minute, 100*time.Millisecond)
}

// Closing a server releases its folder, and an unusable folder is reported.
func TestOpenAgain(t *testing.T) {
	folder := t.TempDir()
	open(t, folder).stop()
	o := open(t, folder)
	defer o.stop()
	_, err := grasp.Open(t.Context(), khatru.NewRelay(), &slicestore.SliceStore{MaxLimit: 500}, "127.0.0.1:3334", folder)
	require.ErrorContains(t, err, folder)
}

// Decisions of the operator survive the loss of the other records.
func TestOpenKeepsRules(t *testing.T) {
	folder, mallory := t.TempDir(), relaytest.NewKey("mallory")
	o := open(t, folder)
	_, err := o.server.Control().Do(t.Context(), "me", "block", "author", mallory.Npub(), "spam")
	require.NoError(t, err)
	o.stop()
	require.NoError(t, os.RemoveAll(filepath.Join(folder, "state")))
	o = open(t, folder)
	defer o.stop()
	require.True(t, o.server.Control().Rules().BlocksRepository(mallory.Ref("x")))
}

// Open reports all invalid arguments together, before it creates anything.
func TestOpenSaysWhatIsWrong(t *testing.T) {
	for want, args := range map[string][]string{
		"the domain is empty":             {"", "data"},
		"is a colon missing":              {"https//grasp.example.com", "data"},
		"the folder is empty":             {"grasp.example.com", ""},
		`bootstrap relay "https://a.b/"`:  {"grasp.example.com", t.TempDir(), "https://a.b/"},
		"want wss:// (or AllowPlaintext)": {"grasp.example.com", t.TempDir(), "ws://relay.example.com"},
	} {
		_, err := grasp.Open(t.Context(), khatru.NewRelay(), &slicestore.SliceStore{MaxLimit: 500}, args[0], args[1], args[2:]...)
		require.ErrorContains(t, err, want)
	}
	_, err := grasp.Open(t.Context(), khatru.NewRelay(), &slicestore.SliceStore{MaxLimit: 500}, "", "", "https://a.b/")
	for _, want := range []string{"domain", "folder", "bootstrap"} {
		require.ErrorContains(t, err, want)
	}
}
