package sync_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Status may precede the latest changes. Callers that act on it use StatusNow.
func TestStatusNow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		r, _ := hosted(t, net, relaysync.Config{}, "a.example")
		after(time.Minute)
		require.NoError(t, r.manager.AddBootstrap(t.Context(), relayURL(t, "wss://b.example")))
		require.NoError(t, r.manager.AddBootstrap(t.Context(), relayURL(t, "wss://c.example")))
		require.Less(t, len(r.manager.Status().Relays), 3, "the last one was made just now")
		s, err := r.manager.StatusNow(t.Context())
		require.NoError(t, err)
		require.Len(t, s.Relays, 3)
		require.Equal(t, s, r.manager.Status(), "that is what readers have from now on")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.manager.StatusNow(ctx)
		require.ErrorIs(t, err, context.Canceled)
		r.stop()
		_, err = r.manager.StatusNow(t.Context())
		require.ErrorIs(t, err, relaysync.ErrNotRunning)
	})
}
