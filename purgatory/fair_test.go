package purgatory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Whoever keeps a repository of their own locked, by pushes that take long, holds up
// nobody's whose repository has the same identifier.
func TestLockedRepositoryHoldsUpNobodyElse(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		keys := []*relaytest.Key{alice, bob}
		honest, stranger := keys[order[0]], keys[order[1]]
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			w.held(announce(stranger, now()))
			w.held(says(stranger, now(), "main", 7))
			wait(time.Second)
			_, unlock, err := w.git.Lock(t.Context(), repoOf(stranger))
			require.NoError(t, err)
			a, s := announce(honest, now()), says(honest, now(), "main", 1)
			require.Equal(t, purgatory.Held, w.submit(a, true))
			require.Equal(t, purgatory.Held, w.submit(s, true))
			w.git.Push(repoOf(honest), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, object(1))
			require.NoError(t, w.p.Pushed(t.Context(), repoOf(honest), []nip34.RefName{branch("main")}))
			wait(2 * time.Minute)
			require.True(t, w.relay.has(s))
			unlock()
			wait(10 * time.Minute)
		})
	}
}
