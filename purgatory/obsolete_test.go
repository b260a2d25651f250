package purgatory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
)

// A record of an earlier version with data for an unknown event is deleted, and so is the ref of
// the data.
func TestObsoleteRecord(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500))
		w.git.Put(repoOf(alice))
		w.pushRefs(repoOf(alice), map[nip34.RefName]nip34.ObjectID{junk(1): object(4)})
		w.stop()
		const key = "purgatory/entry/0101010101010101010101010101010101010101010101010101010101010101"
		value := `{"class":4,"repo":"` + repoOf(alice).String() + `","by_user":true,"seen":"2026-11-14T22:13:20Z","deadline":"2026-11-14T22:43:20Z"}`
		require.NoError(t, w.state.Put(t.Context(), state.Record{Key: key, Value: []byte(value)}))
		w.start()
		require.Empty(t, w.p.Status().Waiting)
		require.Zero(t, w.p.Status().Unreadable)
		for r, err := range w.state.Each(t.Context(), "purgatory/entry/") {
			require.NoError(t, err)
			require.NotEqual(t, key, r.Key)
		}
		wait(3 * time.Hour)
		require.Empty(t, w.git.RefsOf(repoOf(alice)))
	})
}
