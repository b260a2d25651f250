package syncmock_test

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/syncmock"
	"github.com/graspsync/graspsync/sync/wire"
)

// Each mock is current. A quiet mock answers every call, and an expectation replaces one answer.
func TestQuiet(t *testing.T) {
	var _ relaysync.Transport = syncmock.NewQuietTransport(t)
	var _ relaysync.Policy = syncmock.NewQuietPolicy(t)
	store := syncmock.NewQuietStore(t)
	saved, err := relaysync.Store(store).Save(t.Context(), make([]graspsync.Incoming, 2))
	require.NoError(t, err)
	require.Equal(t, graspsync.Stored, saved[1].Result)
	for range store.Events(t.Context(), nostr.Filter{}) {
		t.Error("an empty store has no events")
	}
	conn, err := syncmock.NewQuietTransport(t).Dial(t.Context(), graspsync.RelayURL{})
	require.NoError(t, err)
	require.NoError(t, conn.Send(t.Context(), wire.Request{}))
	store.EXPECT().Remove(gomock.Any(), gomock.Any()).Return(relaysync.ErrCannotRemove)
	require.ErrorIs(t, store.Remove(t.Context(), graspsync.Event{}), relaysync.ErrCannotRemove)
}

func TestExample(t *testing.T) { testQuiet(t); testLacks(t) }
