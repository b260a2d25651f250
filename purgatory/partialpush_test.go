package purgatory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// A push of a part of a newer state is not moved back to an older one while the newer one is held.
// Pushes must match the newer one.
func TestPartialPush(t *testing.T) {
	partial := func(t *testing.T, w *world) (young *nostrEvent) {
		old := says(alice, now()-100, "main", 1, "dev", 1, "gone", 1)
		w.relay.put(announce(alice, now()-500), old)
		w.git.Put(repoOf(alice))
		all := map[nip34.RefName]nip34.ObjectID{branch("main"): object(1), branch("dev"): object(1), branch("gone"): object(1)}
		w.pushRefs(repoOf(alice), all)
		young = says(alice, now(), "main", 2, "dev", 3)
		require.Equal(t, purgatory.Held, w.submit(young, true))
		wait(time.Second)
		require.Equal(t, all, w.git.RefsOf(repoOf(alice)))
		w.pushed(repoOf(alice), branch("main"), object(2))
		wait(time.Second)
		require.Equal(t, object(2), w.git.RefsOf(repoOf(alice))[branch("main")])
		require.Equal(t, object(1), w.git.RefsOf(repoOf(alice))[branch("dev")])
		w.pushed(repoOf(alice), branch("gone"), nip34.ObjectID{})
		wait(time.Second)
		require.NotContains(t, w.git.RefsOf(repoOf(alice)), branch("gone"))
		require.Equal(t, object(2), w.git.RefsOf(repoOf(alice))[branch("main")])
		s, err := w.p.AuthorizedState(t.Context(), repoOf(alice))
		require.NoError(t, err)
		require.Equal(t, young.ID, s.ID.String())
		require.False(t, w.relay.has(young))
		return young
	}
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		young := partial(t, w)
		// An older state that becomes complete moves the refs that the push has not moved.
		middle := says(alice, now()-50, "main", 4, "dev", 4)
		w.held(middle)
		w.git.Put(repoOf(alice), object(4))
		w.p.Pushed(t.Context(), repoOf(alice), nil)
		wait(time.Second)
		require.True(t, w.relay.has(middle))
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(2), branch("dev"): object(4)}, w.git.RefsOf(repoOf(alice)))
		w.pushed(repoOf(alice), branch("dev"), object(3))
		wait(time.Second)
		require.True(t, w.relay.has(young))
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(2), branch("dev"): object(3)}, w.git.RefsOf(repoOf(alice)))
		require.Zero(t, w.p.Sizes()["pushed"])
	})
	served := map[nip34.RefName]nip34.ObjectID{branch("main"): object(1), branch("dev"): object(1), branch("gone"): object(1)}
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		partial(t, w)
		wait(29 * time.Minute)
		require.Equal(t, object(2), w.git.RefsOf(repoOf(alice))[branch("main")])
		wait(2 * time.Minute)
		require.Equal(t, served, w.git.RefsOf(repoOf(alice)), "it has expired: what is served decides again")
		require.Zero(t, w.p.Sizes()["pushed"])
	})
	// Whoever gets the lock after the push, before it is told that the push is over.
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500))
		w.git.Put(repoOf(alice))
		old, young := says(alice, now()-100, "main", 1), says(alice, now(), "main", 2, "dev", 3)
		w.held(old)
		w.held(young)
		_, unlock, err := w.git.Lock(t.Context(), repoOf(alice))
		require.NoError(t, err)
		w.p.Pushing(repoOf(alice), []nip34.RefName{branch("main")})
		w.pushRefs(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(2)})
		wait(time.Second)
		unlock()
		wait(time.Second)
		w.git.Put(repoOf(alice), object(1))
		wait(10 * time.Minute)
		w.p.Pushed(t.Context(), repoOf(alice), nil)
		wait(time.Second)
		require.True(t, w.relay.has(old))
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(2)}, w.git.RefsOf(repoOf(alice)))
	})
	// HEAD does not point to a branch that a push has deleted.
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500), says(alice, now()-400, "main", 1, "dev", 1))
		w.git.Put(repoOf(alice))
		w.pushRefs(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("dev"): object(1)})
		_, unlock, err := w.git.Lock(t.Context(), repoOf(alice)) // else a look might make the branch before it goes
		require.NoError(t, err)
		w.held(says(alice, now(), "dev", 3))
		w.p.Pushing(repoOf(alice), []nip34.RefName{branch("main")})
		w.pushRefs(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): {}})
		unlock()
		w.p.Pushed(t.Context(), repoOf(alice), []nip34.RefName{branch("main")})
		w.git.Put(repoOf(alice), object(1))
		wait(time.Second)
		dir, unlock, err := w.git.Lock(t.Context(), repoOf(alice))
		require.NoError(t, err)
		refs, err := w.git.Refs(t.Context(), dir)
		unlock()
		require.NoError(t, err)
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("dev"): object(1)}, refs.At)
		require.True(t, refs.Head.IsZero())
	})
}
