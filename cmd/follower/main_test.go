package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
)

func served(t *testing.T, name string, b relaytest.Behavior) (*relaytest.Relay, *relayserver.Server) {
	t.Helper()
	relay := relaytest.New("wss://"+name+".example", b)
	server, err := relayserver.Start(relay)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return relay, server
}

// Over real sockets: history and live events of another relay arrive at one that is
// reached over websocket only, and so does what is announced to it while we run.
func TestFollow(t *testing.T) {
	own, ownServer := served(t, "own", relaytest.Behavior{Cap: 20})
	other, otherServer := served(t, "other", relaytest.Behavior{})
	owner := relaytest.NewKey("owner")
	opt, err := parse([]string{
		"-relay", ownServer.URL().String(), "-domain", "grasp.example", "-allow-net", "127.0.0.0/8",
		"-allow-plaintext", "-batch-window", "20ms", "-data", t.TempDir(),
	})
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, opt.allowNet)

	host := otherServer.URL().String()
	own.Publish(owner.Hosted(nostr.Now()-1000, "repo", "grasp.example", host))
	for i := range 50 {
		other.Publish(owner.Issue(nostr.Now()-nostr.Timestamp(100+i), owner.Ref("repo"), fmt.Sprint(i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, opt, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	arrived := func(n int) func() bool {
		return func() bool { return len(own.Query(nostr.Filter{Kinds: []int{1621}})) == n }
	}
	require.Eventually(t, arrived(50), time.Minute, 20*time.Millisecond)

	own.Publish(owner.Hosted(nostr.Now(), "second", "grasp.example", host))
	other.Publish(owner.Issue(nostr.Now(), owner.Ref("second"), "live"))
	require.Eventually(t, arrived(51), time.Minute, 20*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	// Nothing was kept: each start fetched all history from everybody, and dialed at once.
	kept, err := os.ReadFile(filepath.Join(opt.data, "state.db"))
	require.NoError(t, err)
	require.Contains(t, string(kept), otherServer.URL().HostPort().String())
}

func TestParse(t *testing.T) {
	for _, bad := range [][]string{
		nil, {"-relay", "http://x.example"}, {"-relay", "ws://x.example", "-domain", "/"},
		{"-relay", "ws://x.example", "-allow-net", "10.0.0.0"}, {"-relay", "ws://x.example", "-bootstrap", "ftp://a"},
		{"-relay", "ws://x.example", "-allow-plaintext", "ws://y.example"}, {"-relay", "ws://x.example", "-batch-window", "0s"},
	} {
		_, err := parse(bad)
		require.Error(t, err, bad)
	}
	_, err := parse(nil)
	require.ErrorContains(t, err, "-relay is needed")
	opt, err := parse([]string{"-relay", "ws://x.example:7777"})
	require.NoError(t, err)
	require.True(t, opt.identity.IsRelay(opt.relay))
}
