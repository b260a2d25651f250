package purgatory_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// A release that finds the repository of another maintainer locked is repeated, and nobody is warned.
func TestLockOfAnotherMaintainerIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Membership: unanswered()})
		var logged strings.Builder
		w.cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		w.start()
		defer func() { w.stop() }()
		w.relay.put(announce(alice, now()-100), listing(bob, now()-100, alice), says(bob, now()-200, "main", 1))
		w.git.Put(repoOf(bob), object(1))
		w.git.Push(repoOf(bob), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		_, unlock, err := w.git.Lock(t.Context(), repoOf(bob))
		require.NoError(t, err)
		st := says(alice, now(), "main", 1)
		w.held(st)
		wait(4 * time.Second)
		require.False(t, w.relay.has(st))
		unlock()
		wait(10 * time.Second)
		require.True(t, w.relay.has(st))
		require.Equal(t, object(1), w.git.RefsOf(repoOf(alice))[branch("main")])
		require.NotContains(t, logged.String(), "level=WARN")
	})
}
