package health

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// A dial refused by our settings delays the next attempt like a failure. It is not saved, and does
// not add to the relay's own failures.
func TestRefusedIsNoFailureOfTheRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, err := graspsync.ParseRelayURL("wss://relay.example.com")
		require.NoError(t, err)
		tracker, err := NewTracker(Config{})
		require.NoError(t, err)
		refused := func(times int) {
			for range times {
				time.Sleep(time.Until(tracker.NextAttempt(u)))
				tracker.Attempt(u)
				tracker.Refused(u, errors.New("not allowed"))
			}
		}
		fail := func() {
			time.Sleep(time.Until(tracker.NextAttempt(u)))
			tracker.Attempt(u)
			tracker.Failed(u, errors.New("down"))
		}
		kept := func() Record {
			r, ok := tracker.Export(u)
			require.True(t, ok)
			return r
		}
		refused(6)
		s := tracker.Status(u)
		require.Equal(t, 6, s.Failures)
		require.Zero(t, s.FailedAttempts)
		require.Equal(t, "not allowed", s.LastError)
		require.Greater(t, time.Until(s.NextAttempt), 2*time.Minute)
		require.Zero(t, kept().Failures)
		require.Zero(t, kept().NextAttempt)
		require.Zero(t, kept().LastAttempt)
		require.Empty(t, kept().LastError)
		tracker.Attempt(u)
		require.True(t, kept().Dialing)
		require.Zero(t, kept().Failures)
		require.WithinDuration(t, time.Now(), kept().LastAttempt, 0, "who dies of it is held back")
		tracker.Closed(u)
		require.False(t, kept().Dialing)

		fail()
		require.Equal(t, 1, tracker.Status(u).Failures)
		require.Equal(t, "down", kept().LastError)
		require.Less(t, time.Until(tracker.NextAttempt(u)), 6*time.Second)
		fail()
		before := kept()
		refused(3)
		after := kept()
		require.Equal(t, before.Failures, after.Failures)
		require.Equal(t, before.NextAttempt, after.NextAttempt)
		require.Equal(t, "down", after.LastError)
		fail()
		require.Equal(t, 3, tracker.Status(u).Failures)
		require.Equal(t, before.FailingSince, kept().FailingSince)

		refused(1)
		time.Sleep(time.Until(tracker.NextAttempt(u)))
		tracker.Attempt(u)
		tracker.Connected(u)
		require.Equal(t, 3, kept().Failures)
		time.Sleep(time.Hour)
		require.Zero(t, tracker.Status(u).Failures)
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
