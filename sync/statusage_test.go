package sync_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Without activity the time of a status and the uptimes of relays did not change for a minute, as
// if the process hung.
func TestStatusIsOfNow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		net.Add("wss://down.example", relaytest.Behavior{Down: true})
		r, _ := hosted(t, net, relaysync.Config{}, "a.example", "down.example")
		after(10 * time.Minute)
		before := r.manager.Status()
		require.WithinDuration(t, time.Now(), before.At, time.Second)
		up, down := r.relay("wss://a.example"), r.relay("wss://down.example")
		for _, pause := range []time.Duration{20 * time.Second, 13 * time.Second, 2 * time.Hour} {
			before = r.manager.Status()
			after(pause)
			now := r.manager.Status()
			passed := now.At.Sub(before.At)
			require.InDelta(t, pause, passed, float64(time.Second))
			require.WithinDuration(t, time.Now(), now.At, time.Second)
			was, is := up, r.relay("wss://a.example")
			require.InDelta(t, pause, is.Uptime-was.Uptime, float64(2*time.Second))
			require.Equal(t, was.Downtime, is.Downtime)
			require.Greater(t, is.UptimeShare, was.UptimeShare-1e-9)
			up = is
			was, is = down, r.relay("wss://down.example")
			require.InDelta(t, pause, is.Downtime-was.Downtime, float64(2*time.Second))
			require.Zero(t, is.Uptime)
			down = is
		}
		r.stop()
		last := r.manager.Status()
		after(time.Hour)
		require.Equal(t, last, r.manager.Status(), "nothing runs any more")
	})
}

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
