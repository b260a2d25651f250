package purgatory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Data that was pushed to several repositories for one event, to one that the event
// does not name, or for an event that is served, ends as it should.
func TestPushedBeforeItsEvent(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500), announce(bob, now()-500))
		p := pull(carol, repoOf(alice), 5, graspsync.KindPullRequest)
		id, _ := graspsync.ParseEventID(p.ID)
		name := nip34.EventRef(id)
		push := func(ref graspsync.RepoRef) {
			w.git.Put(ref)
			w.git.Push(ref, map[nip34.RefName]nip34.ObjectID{name: object(5)}, object(5))
			require.NoError(t, w.p.Pushed(t.Context(), ref, []nip34.RefName{name, branch("main")}))
			wait(time.Second)
		}
		push(repoOf(alice))
		push(repoOf(bob))
		push(repoOf(bob))
		require.Equal(t, 1, w.p.Status().Placeholders)
		w.stop()
		w.start()
		w.held(p)
		wait(time.Second)
		require.True(t, w.relay.has(p))
		require.Empty(t, w.git.RefsOf(repoOf(bob)), "the event does not name it")
		push(repoOf(alice))
		wait(time.Hour)
		require.Equal(t, object(5), w.git.RefsOf(repoOf(alice))[name], "it is served")
		// An event that is stored without us needs no place any more.
		q := pull(carol, repoOf(alice), 6, graspsync.KindPullRequest)
		id, _ = graspsync.ParseEventID(q.ID)
		name = nip34.EventRef(id)
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{name: object(6)}, object(6))
		require.NoError(t, w.p.Pushed(t.Context(), repoOf(alice), []nip34.RefName{name}))
		w.relay.put(q)
		w.p.Arrived(eventtest.Of(q))
		wait(time.Second)
		require.Zero(t, w.p.Status().Placeholders)
		// Waiting, its data pushed elsewhere.
		r := pull(carol, repoOf(alice), 7, graspsync.KindPullRequest)
		w.held(r)
		id, _ = graspsync.ParseEventID(r.ID)
		name = nip34.EventRef(id)
		w.git.Push(repoOf(bob), map[nip34.RefName]nip34.ObjectID{name: object(5)})
		require.NoError(t, w.p.Pushed(t.Context(), repoOf(bob), []nip34.RefName{name}))
		wait(time.Second)
		require.Empty(t, w.git.RefsOf(repoOf(bob)))
	})
}
