//go:build !race

package main

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/relaytest/relayserver"
)

// -once called incomplete what the page calls in sync: git data that no server has. It names the repository. That
// nothing is followed is incomplete.
func TestCaseC18_OnceHasTheWordsOfThePage(t *testing.T) {
	ours, gAddr := freeAddr(t), freeAddr(t)
	opt := options{
		listen: ours, domain: ours, data: t.TempDir(), once: true, onceWait: 5 * time.Second,
		allowNet: []netip.Prefix{loopback}, allowPlaintext: true, batchWindow: 100 * time.Millisecond, baseBackoff: time.Minute, huntBackoff: 300 * time.Millisecond,
	}
	try := func(o options) (bool, string) {
		var out bytes.Buffer
		complete, err := once(t.Context(), o, slog.New(slog.DiscardHandler), &out)
		require.NoError(t, err)
		return complete, out.String()
	}
	complete, said := try(opt)
	require.False(t, complete, said)
	require.Contains(t, said, "no relay is followed")

	owner := relaytest.NewKey("owner")
	_, stop := server(t, options{listen: gAddr, domain: gAddr})
	work := newWork(t)
	ann := owner.Hosted(nostr.Now()-100, "repo", "ws://"+gAddr, "ws://"+ours)
	st := owner.State(nostr.Now()-90, "repo", refs(t, work), "main")
	hold(t, gAddr, ann, st)
	git(t, work, "push", "-q", owner.CloneURL("ws://"+gAddr, "repo"), "main")
	eventually(t, "the announcement", func() bool { return served(t, gAddr, ann) })
	hub := relaytest.New("wss://hub.example", relaytest.Behavior{})
	hub.Publish(ann)
	hub.Publish(st)
	s, err := relayserver.Start(hub)
	require.NoError(t, err)
	defer s.Close()
	opt.bootstrap = []graspsync.RelayURL{s.URL()}
	complete, said = try(opt)
	require.True(t, complete, said)

	stop()
	require.NoError(t, os.RemoveAll(filepath.Join(opt.data, "git")))
	_, stop = server(t, options{listen: gAddr, domain: gAddr}) // it is reached, and has nothing
	defer func() { stop() }()
	opt.onceWait = time.Minute // it ends sooner, once the server was asked in vain
	complete, said = try(opt)
	require.True(t, complete, said)
	require.Contains(t, said, "\nlacks git data: "+owner.Ref("repo").String()+"\ncomplete: In sync, 1 repository unobtainable\n")

	hub.Publish(owner.State(nostr.Now()-10, "repo", map[string]string{"refs/heads/main": "1111111111111111111111111111111111111111"}, "main"))
	opt.expiry, opt.onceWait = time.Second, 4*time.Second
	_, said = try(opt)
	require.Contains(t, said, "expired: 1 events whose git data never arrived")
}
