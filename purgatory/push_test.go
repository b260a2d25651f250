package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// junk is the ref of an event that never comes.
func junk(n int) nip34.RefName {
	id, _ := filters.ParseEventID(fmt.Sprintf("%064x", n+1))
	return nip34.EventRef(id)
}

// pushRefs has git move refs, as a push does; nobody is told.
func (w *world) pushRefs(ref filters.RepoRef, refs map[nip34.RefName]nip34.ObjectID) {
	var objects []nip34.ObjectID
	for _, id := range refs {
		if !id.IsZero() {
			objects = append(objects, id)
		}
	}
	w.git.Push(ref, refs, objects...)
}

// pushed is a push to one ref that ends as it should.
func (w *world) pushed(ref filters.RepoRef, name nip34.RefName, id nip34.ObjectID) {
	w.pushRefs(ref, map[nip34.RefName]nip34.ObjectID{name: id})
	require.NoError(w.t, w.p.Pushed(w.t.Context(), ref, []nip34.RefName{name}))
}

// Strangers who push to every repository there is keep no event out, however many they
// are; what has no room in their share is counted, and leaves no ref behind.
func TestTrapP10_PushesHaveTheirOwnShare(t *testing.T) {
	cfg := purgatory.Config{MaxEntries: 2, MaxBytes: 4000, MaxPlaceholders: 5, MaxPlaceholdersPerRepo: 3}
	run(t, cfg, func(t *testing.T, w *world) {
		owners := []*relaytest.Key{alice, bob, carol}
		for i, k := range owners {
			w.relay.put(announce(k, now()-500))
			w.git.Put(repoOf(k))
			for j := range 5 {
				w.pushed(repoOf(k), junk(10*i+j), object(1))
			}
		}
		wait(time.Second)
		require.Equal(t, 5, w.p.Status().Placeholders)
		require.Len(t, w.git.RefsOf(repoOf(alice)), 3)
		require.Len(t, w.git.RefsOf(repoOf(bob)), 2)
		require.Empty(t, w.git.RefsOf(repoOf(carol)))
		require.Equal(t, uint64(10), w.p.Status().Dropped["pushed"])
		w.held(says(alice, now(), "main", 99))
		w.held(says(bob, now(), "main", 99))
		require.Equal(t, purgatory.Refused, w.submit(says(carol, now(), "main", 99), false), "events have bounds as well")
		// A push to a second repository for the same event is one more in that.
		w.pushed(repoOf(carol), junk(0), object(1))
		wait(time.Second)
		require.Len(t, w.git.RefsOf(repoOf(carol)), 1)
		w.pushed(repoOf(alice), junk(10), object(1))
		wait(time.Second)
		require.Len(t, w.git.RefsOf(repoOf(alice)), 3, "alice's has its most already")
		wait(21 * time.Minute)
		for _, k := range owners {
			require.Empty(t, w.git.RefsOf(repoOf(k)))
		}
		w.pushed(repoOf(carol), junk(50), object(1))
		wait(time.Second)
		require.Len(t, w.git.RefsOf(repoOf(carol)), 1, "there is room again")
	})
}
