//go:build !race

// khatru v0.19.1 reads its list of listeners without a lock (listener.go), so that
// two of its clients are a data race of its own: not run with the race detector.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/porttest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
	"github.com/graspsync/graspsync/sync/wstransport"
)

var loopback = netip.MustParsePrefix("127.0.0.0/8")

// server runs a server in this process.
func server(t *testing.T, opt options) (addr string, stop func()) {
	t.Helper()
	opt.SummaryEvery = time.Minute
	return serverTo(t, opt, t.Output())
}

func serverTo(t *testing.T, opt options, out io.Writer) (addr string, stop func()) {
	t.Helper()
	if opt.Data == "" {
		opt.Data = t.TempDir()
	}
	if opt.AdminListen == "" {
		opt.AdminListen = opt.Listen
	}
	opt.FetchBackoff = 300 * time.Millisecond
	opt.AllowNet = []netip.Prefix{loopback}
	opt.AllowPlaintext = true
	opt.BatchWindow = 50 * time.Millisecond
	opt.BaseBackoff = 100 * time.Millisecond
	opt.RestartPause = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan net.Addr, 1), make(chan error, 1)
	log := slog.New(slog.NewTextHandler(out, nil))
	go func() { ended <- run(ctx, opt, log, func(a net.Addr) { started <- a }) }()
	select {
	case a := <-started:
		addr = a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	return addr, func() {
		t.Helper()
		began := time.Now()
		cancel()
		require.NoError(t, <-ended)
		require.Less(t, time.Since(began), 30*time.Second)
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	return porttest.Address(t)
}

func get(t *testing.T, url string, header ...string) string {
	t.Helper()
	code, body := answer(t, url, header...)
	require.Equal(t, http.StatusOK, code)
	return body
}

func dial(t *testing.T, addr string) relaysync.Conn {
	t.Helper()
	dialer, err := egress.NewDialer(egress.Config{Allow: []netip.Prefix{loopback}, AllowPlaintext: true})
	require.NoError(t, err)
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer})
	require.NoError(t, err)
	u, err := graspsync.ParseRelayURL("ws://" + addr)
	require.NoError(t, err)
	c, err := transport.Dial(t.Context(), u)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// await reads until a message of the type comes.
func await(t *testing.T, c relaysync.Conn, typ wire.Type) wire.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		m, err := c.Receive(ctx)
		require.NoError(t, err)
		if m.Type == typ {
			return m
		}
	}
}

func publish(t *testing.T, c relaysync.Conn, ev *nostr.Event) wire.Message {
	t.Helper()
	require.NoError(t, c.Send(t.Context(), wire.Request{Type: wire.TypePublish, Event: ev}))
	return await(t, c, wire.TypeOK)
}

// Two servers: what is published on one arrives at the other, history and live.
func TestTwoServers(t *testing.T) {
	aAddr, bAddr := freeAddr(t), freeAddr(t)
	aURL, err := graspsync.ParseRelayURL("ws://" + aAddr)
	require.NoError(t, err)
	_, stopA := server(t, options{Listen: aAddr, Domain: aAddr})
	_, stopB := server(t, options{Listen: bAddr, Domain: bAddr, Bootstrap: []graspsync.RelayURL{aURL}})
	owner := relaytest.NewKey("owner")
	a, b := dial(t, aAddr), dial(t, bAddr)
	require.NoError(t, b.Send(t.Context(), wire.Request{
		Type: wire.TypeReq, Sub: "x", Filters: []nostr.Filter{{Kinds: []int{1621, 1111}}},
	}))
	await(t, b, wire.TypeEOSE)

	ann := owner.Hosted(nostr.Now()-100, "repo", "ws://"+aAddr, "ws://"+bAddr)
	work := newWork(t)
	hold(t, aAddr, ann, owner.State(nostr.Now()-90, "repo", refs(t, work), "main"))
	git(t, work, "push", "-q", owner.CloneURL("ws://"+aAddr, "repo"), "main")
	eventually(t, "the announcement", func() bool { return served(t, aAddr, ann) })
	foreign := owner.Hosted(nostr.Now()-100, "foreign", "ws://elsewhere.example")
	require.False(t, publish(t, a, foreign).Accepted)
	issue := owner.Issue(nostr.Now()-50, owner.Ref("repo"), "x")
	require.True(t, publish(t, a, issue).Accepted)
	require.Equal(t, issue.ID, await(t, b, wire.TypeEvent).Event.ID.String())
	comment := owner.Comment(nostr.Now(), issue, "live")
	require.True(t, publish(t, a, comment).Accepted)
	require.Equal(t, comment.ID, await(t, b, wire.TypeEvent).Event.ID.String())

	require.Equal(t, "ok\n", get(t, "http://"+bAddr+"/healthz"))
	require.Eventually(t, func() bool { // what it shows is up to a second old
		return strings.Contains(get(t, "http://"+bAddr+"/metrics"), fmt.Sprintf("ngit_sync_relay_connected{relay=%q} 3", aURL))
	}, time.Minute, 50*time.Millisecond)
	require.Contains(t, get(t, "http://"+bAddr+"/", "Accept", "application/nostr+json"), `"supported_nips":[1,9,11,34,40,42,62,70,77]`)
	var status relaysync.Status
	require.NoError(t, json.Unmarshal([]byte(get(t, "http://"+bAddr+"/status.json")), &status))
	require.Len(t, status.Relays, 1)
	require.Equal(t, aURL, status.Relays[0].URL)
	require.Positive(t, status.Relays[0].UptimeShare)
	for spelling, asked := range map[string]string{
		"event=" + issue.ID: issue.ID, "repo=" + owner.Ref("repo").String(): owner.Ref("repo").String(), "repo=" + owner.Npub() + "/repo": owner.Ref("repo").String(),
		"repo=" + owner.CloneURL("ws://"+aAddr, "repo"): owner.Ref("repo").String(), "relay=ws://" + aAddr: aURL.String(),
		"event=" + foreign.ID: foreign.ID, "repo=" + owner.Ref("another").String(): owner.Ref("another").String(),
	} {
		var x explain.Explanation
		require.NoError(t, json.Unmarshal([]byte(get(t, "http://"+bAddr+"/status.json?"+spelling)), &x), spelling)
		require.Equal(t, asked, x.Asked)
		require.NotEmpty(t, x.Answer)
		if x.Asked == owner.Ref("repo").String() {
			require.Equal(t, 1, x.Repository.Status.Roots)
			require.Equal(t, aURL, x.Repository.Status.Relays[0].URL)
		}
	}
	var repos []relaysync.RepoStatus
	require.NoError(t, json.Unmarshal([]byte(get(t, "http://"+bAddr+"/status.json?repo=all")), &repos))
	for _, query := range []string{
		"repo=repo", "event=", "what=1", "repo=%zz",
	} {
		resp, err := http.Get("http://" + bAddr + "/status.json?" + query)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, query)
		require.Contains(t, string(body), "unusable question", query)
	}
	require.Len(t, repos, 1)
	stopB()
	stopA()
}

// lines passes on what is written.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}
