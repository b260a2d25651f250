package purgatory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
)

// kept is all that is on the disk.
func (w *world) kept() map[string]string {
	out := make(map[string]string)
	for r, err := range w.state.Each(w.t.Context(), "") {
		require.NoError(w.t, err)
		out[r.Key] = string(r.Value)
	}
	return out
}

// Whoever waits for a lock and whose time is over says why, has done nothing, and leaves no
// lock behind.
func TestWhoDoesNotGetALockHasDoneNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		w.start()
		w.stop()
		announcement := announce(alice, now())
		both := carol.Event(now(), graspsync.KindPullRequest, "", nostrTag{"c", object(2).String()},
			nostrTag{"a", repoOf(alice).String()}, nostrTag{"a", repoOf(bob).String()})
		w.held(announcement)
		w.held(both)
		saves, kept := w.relay.saves, w.kept()
		require.NotEmpty(t, kept)
		over := errors.New("it is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(over)
		for who, err := range w.p.AtLocks(ctx, announcement, both) {
			require.ErrorIs(t, err, over, who)
		}
		require.Equal(t, kept, w.kept())
		require.Equal(t, saves, w.relay.saves)
		require.Empty(t, w.p.Left())
		require.Len(t, w.p.Held(nostrFilter{}), 2)
	})
}
