package purgatory_test

import (
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
