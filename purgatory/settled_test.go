package purgatory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory"
)

// WaitServed waits until the events of a push are served.
func TestSettledWhenEventsAreServed(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		ref := repoOf(alice)
		require.NoError(t, w.p.WaitServed(t.Context(), ref), "nothing is to be seen to")
		ann, state := announce(alice, now()-10), says(alice, now(), "main", 1)
		require.Equal(t, purgatory.Held, w.submit(ann, true))
		require.Equal(t, purgatory.Held, w.submit(state, true))
		wait(time.Second)
		w.pushed(ref, branch("main"), object(1))
		require.NoError(t, w.p.WaitServed(t.Context(), ref))
		require.True(t, w.relay.has(ann))
		require.True(t, w.relay.has(state))
	})
}

// WaitServed does not wait for a relay that fails to store an event.
func TestSettledThoughARelayStoresNothing(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		ref := repoOf(alice)
		w.relay.put(announce(alice, now()-10))
		w.git.Put(ref)
		state := says(alice, now(), "main", 1)
		w.held(state)
		wait(time.Second)
		w.relay.mu.Lock()
		w.relay.fail = errors.New("the disk is full")
		w.relay.mu.Unlock()
		w.pushed(ref, branch("main"), object(1))
		began := time.Now()
		require.NoError(t, w.p.WaitServed(t.Context(), ref))
		require.Less(t, time.Since(began), 10*time.Second)
		require.False(t, w.relay.has(state))
		w.relay.mu.Lock()
		w.relay.fail = nil
		w.relay.mu.Unlock()
		wait(time.Hour)
		require.True(t, w.relay.has(state))
	})
}
