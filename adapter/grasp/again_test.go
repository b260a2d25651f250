package grasp_test

import (
	"context"
	"testing"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// After a New that failed, events on the relay reached hooks of the closed server. Another New must
// work.
func TestNewAgainAfterAFailure(t *testing.T) {
	relay, db := khatru.NewRelay(), &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	good := grasp.Config{Dir: t.TempDir(), State: state.NewMemory()}
	for name, spoil := range map[string]func(*grasp.Config){
		"Purgatory": func(c *grasp.Config) { c.Purgatory = purgatory.Config{Limits: purgatory.Limits{MaxEntries: -1}} },
		"Serve":     func(c *grasp.Config) { c.Serve = gitserve.Config{MaxPush: -1} },
	} {
		bad := good
		spoil(&bad)
		_, err := grasp.New(t.Context(), relay, db, identity, bad)
		require.Error(t, err, name)
		require.Empty(t, relay.RejectEvent, name)
		require.Empty(t, relay.StoreEvent, name)
		require.Empty(t, relay.OverwriteRelayInformation, name)
	}
	server, err := grasp.New(t.Context(), relay, db, identity, good)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	_, err = relay.AddEvent(t.Context(), relaytest.NewKey("alice").Hosted(nostr.Now(), "repo", "grasp.example.com"))
	require.NoError(t, err)
	require.Len(t, server.Purgatory().Status().Waiting, 1)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, server.Close())
}
