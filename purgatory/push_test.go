package purgatory_test

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// junk returns the ref of an event that never arrives.
func junk(n int) nip34.RefName {
	id, _ := graspsync.ParseEventID(fmt.Sprintf("%064x", n+1))
	return nip34.EventRef(id)
}

func refOf(ev *nostrEvent) nip34.RefName {
	id, _ := graspsync.ParseEventID(ev.ID)
	return nip34.EventRef(id)
}

// pushRefs moves refs as a push does, without a report.
func (w *world) pushRefs(ref graspsync.RepoRef, refs map[nip34.RefName]nip34.ObjectID) {
	var objects []nip34.ObjectID
	for _, id := range refs {
		if !id.IsZero() {
			objects = append(objects, id)
		}
	}
	w.git.Push(ref, refs, objects...)
}

// pushed is a complete push to one ref.
func (w *world) pushed(ref graspsync.RepoRef, name nip34.RefName, id nip34.ObjectID) {
	w.pushRefs(ref, map[nip34.RefName]nip34.ObjectID{name: id})
	w.p.Pushed(w.t.Context(), ref, []nip34.RefName{name})
}

// If the process is killed after git moved a ref, or the push is not reported, the ref is removed
// unless its event is held or served.
func TestTrapP5_PushThatNobodyWasToldOf(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		served, waits, late := pull(bob, repoOf(alice), 1, graspsync.KindPullRequest), pull(bob, repoOf(alice), 2, graspsync.KindPullRequest),
			pull(bob, repoOf(alice), 3, graspsync.KindPullRequest)
		w.relay.put(announce(alice, now()-500), served)
		w.git.Put(repoOf(alice))
		w.held(carol.Event(now(), graspsync.KindAnnouncement, "", nostrTag{"d", "waits"}))
		wait(time.Second)
		require.True(t, w.git.Has(carol.Ref("waits")))
		w.stop()
		w.pushRefs(repoOf(alice), map[nip34.RefName]nip34.ObjectID{
			refOf(served): object(1), refOf(waits): object(2), refOf(late): object(3), junk(1): object(4), junk(2): object(4),
		})
		w.pushRefs(carol.Ref("waits"), map[nip34.RefName]nip34.ObjectID{junk(1): object(4)})
		w.start()
		w.held(waits)
		wait(3 * time.Second)
		require.True(t, w.relay.has(waits))
		wait(13 * time.Minute)
		w.held(late)
		wait(3 * time.Hour)
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{
			refOf(served): object(1), refOf(waits): object(2), refOf(late): object(3),
		}, w.git.RefsOf(repoOf(alice)))
		require.True(t, w.relay.has(late))
		require.False(t, w.git.Has(carol.Ref("waits")), "and does not keep what waits from expiring")
	})
}

// A state is not held if a newer state of its author is served.
func TestOlderThanServed(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		at := now()
		served := says(alice, at, "main", 1)
		w.relay.put(announce(alice, at-500), served)
		w.git.Put(repoOf(alice), object(1))
		older := says(alice, at-1, "main", 2)
		a, err := w.p.Submit(t.Context(), eventtest.Of(older), graspsync.Source{})
		require.NoError(t, err)
		require.Equal(t, purgatory.Refused, a.Decision)
		require.Contains(t, a.Reason, "duplicate: ")
		require.Zero(t, w.p.Status().Held)
		// In the same second the lowest id is the newest.
		before, after := 0, 0
		for i := range 20 {
			other := says(alice, at, "main", 3+i)
			if other.ID > served.ID {
				a, err := w.p.Submit(t.Context(), eventtest.Of(other), graspsync.Source{})
				require.NoError(t, err)
				require.Contains(t, a.Reason, "duplicate: ")
				after++
			} else if before == 0 {
				w.held(other)
				before++
			}
		}
		require.NotZero(t, before*after)
		w.held(says(bob, at-1, "main", 2)) // each author has separate versions
		wait(time.Hour)
		w.held(says(alice, at+1, "main", 2))
	})
}

// slowStates is a relay that returns states slowly.
type slowStates struct{ *relay }

func (r slowStates) Events(ctx context.Context, f nostrFilter) iter.Seq2[graspsync.Event, error] {
	if asks(f) == "states" {
		time.Sleep(time.Second)
	}
	return r.relay.Events(ctx, f)
}

// The first state gives a repository its object format before Submit returns. Before, the first
// push of SHA-256 objects was refused.
func TestARepositoryHashesAsItsFirstStateSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Membership: unanswered()})
		w.host = slowStates{w.relay}
		w.start()
		defer func() { w.stop() }()
		for _, a := range []*nostrEvent{announce(alice, now()), listing(bob, now(), alice), announce(carol, now())} {
			require.Equal(t, purgatory.Held, w.submit(a, true))
		}
		wait(10 * time.Second)
		st := alice.Event(now(), graspsync.KindState, "", nostrTag{"d", "r"}, nostrTag{"refs/heads/main", fmt.Sprintf("%064x", 1)})
		require.Equal(t, purgatory.Held, w.submit(st, true))
		for k, format := range map[*relaytest.Key]nip34.ObjectFormat{alice: nip34.SHA256, bob: nip34.SHA256, carol: nip34.SHA1} {
			dir, unlock, err := w.git.Lock(t.Context(), repoOf(k))
			require.NoError(t, err)
			unlock()
			refs, err := w.git.Refs(t.Context(), dir)
			require.NoError(t, err)
			require.Equal(t, format, refs.Format)
		}
		wait(10 * time.Second)
	})
}
