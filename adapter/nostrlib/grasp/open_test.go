package graspadapter_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/khatru/grasp"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/gate"
	graspadapter "github.com/graspsync/graspsync/adapter/nostrlib/grasp"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A server started with Open holds events until their push, also after a restart.
func TestOpen(t *testing.T) {
	p, listener := open(t)
	p.relay.Negentropy = false
	start := func() (stop func()) {
		server, err := graspadapter.Open(t.Context(), p.grasp, p.db, p.addr, p.dir)
		require.NoError(t, err)
		door := gate.New(p.relay, gate.Config{})
		server.Sync().Pace(door.Wait)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- gate.Serve(ctx, listener, door, server.Run) }()
		return func() {
			cancel()
			require.NoError(t, <-ended)
			door.Close()
			require.NoError(t, server.Close())
		}
	}
	stop := start()
	require.True(t, p.relay.Negentropy)
	alice := relaytest.NewKey("alice")
	dir, commit := work(t)
	now := gonostr.Now()
	require.NoError(t, p.publish(alice.Hosted(now-9, "repo", "ws://"+p.addr)))
	require.NoError(t, p.publish(alice.State(now-8, "repo", map[string]string{"refs/heads/main": commit}, "main")))
	require.Empty(t, p.kinds())
	_, err := graspadapter.Open(t.Context(), grasp.New(khatru.NewRelay(), filepath.Join(p.dir, "other")), p.db, p.addr, p.dir)
	require.ErrorContains(t, err, p.dir, "the folder belongs to one")
	stop()

	p.swap(again(t, p))
	listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", p.addr)
	require.NoError(t, err)
	stop = start()
	git(t, dir, "push", "-q", p.url(alice, "repo"), "main")
	require.Equal(t, []int{30617, 30618}, p.kinds())
	stop()

	folder := t.TempDir()
	_, err = graspadapter.Open(t.Context(), grasp.New(khatru.NewRelay(), filepath.Join(folder, "git")), p.db, "grasp.example.com/git", folder)
	require.ErrorIs(t, err, graspadapter.ErrConfig, "it has a path")
	_, err = graspadapter.Open(t.Context(), nil, nil, "", "")
	require.ErrorContains(t, err, "domain")
}
