package health

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// A dial refused by our settings is repeated less and less often. It is no failure of the relay.
func TestRefusedIsNoFailureOfTheRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, err := graspsync.ParseRelayURL("wss://relay.example.com")
		require.NoError(t, err)
		tracker, err := NewTracker(Config{})
		require.NoError(t, err)
		for range 6 {
			time.Sleep(time.Until(tracker.NextAttempt(u)))
			tracker.Attempt(u)
			tracker.Refused(u, errors.New("not allowed"))
		}
		s := tracker.Status(u)
		require.Zero(t, s.Failures)
		require.Zero(t, s.FailedAttempts)
		require.Equal(t, Disconnected, s.State)
		require.Equal(t, "not allowed", s.LastError)
		require.GreaterOrEqual(t, time.Until(s.NextAttempt), 32*time.Minute)
		r, _ := tracker.Export(u)
		require.Zero(t, r.NextAttempt, "another process may have other settings")
	})
}

// Events are accepted in any order, as a custom Transport may report them.
func TestAnyOrder(t *testing.T) {
	u, err := graspsync.ParseRelayURL("wss://relay.example.com")
	require.NoError(t, err)
	tell := []func(*RelayHealthTracker){
		func(x *RelayHealthTracker) { x.Attempt(u) },
		func(x *RelayHealthTracker) { x.Connected(u) },
		func(x *RelayHealthTracker) { x.Failed(u, errors.New("failed")) },
		func(x *RelayHealthTracker) { x.Refused(u, errors.New("refused")) },
		func(x *RelayHealthTracker) { x.Lost(u, errors.New("lost")) },
		func(x *RelayHealthTracker) { x.Closed(u) },
		func(x *RelayHealthTracker) { x.Stopped(u) },
		func(x *RelayHealthTracker) { x.Hostile(u) },
		func(x *RelayHealthTracker) { x.Forgive(u) },
		func(x *RelayHealthTracker) { x.Forget(u) },
	}
	n := len(tell)
	for sequence := range n * n * n * n {
		tracker, err := NewTracker(Config{})
		require.NoError(t, err)
		for rest := sequence; rest > 0; rest /= n {
			tell[rest%n](tracker)
		}
		s := tracker.Status(u)
		require.LessOrEqual(t, s.FailedAttempts, s.Attempts, sequence)
		require.LessOrEqual(t, s.Disconnects, s.Connections, sequence)
		require.Less(t, time.Until(s.NextAttempt), 26*time.Hour, sequence)
	}
}
