package purgatory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

var (
	alice = relaytest.NewCheapKey("alice")
	bob   = relaytest.NewCheapKey("bob")
	carol = relaytest.NewCheapKey("carol")
	dave  = relaytest.NewCheapKey("dave")
)

// An announcement that replaces a served one is not held.
func TestActiveReplacementPasses(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-100))
		require.Equal(t, purgatory.Pass, w.submit(announce(alice, now()), false))
		require.Equal(t, purgatory.Pass, w.submit(alice.Issue(now(), repoOf(alice), "hello"), false))
	})
}

// Objects are collected from two servers. An event with objects on no server stays held.
func TestGathered(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), serving(1))
		w.git.Serve(clone("b.example/r.git"), serving(3))
		w.relay.put(announce(alice, now(), "a.example/r.git", "b.example/r.git"))
		s := says(alice, now(), "main", 1, "other", 3)
		p := pull(bob, repoOf(alice), 9, graspsync.KindPullRequest)
		w.held(s)
		w.held(p)
		wait(time.Second)
		require.True(t, w.relay.has(s))
		require.False(t, w.relay.has(p))
		wait(31 * time.Minute)
		require.False(t, w.relay.has(p))
		require.Equal(t, purgatory.Refused, w.submit(p, false), "what waited in vain does not wait again")
	})
}

// A fetch for a client's event waits for a push, which releases the event.
func TestPushReleases(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a, s := announce(alice, now(), "a.example/r.git"), says(alice, now(), "main", 1)
		require.Equal(t, purgatory.Held, w.submit(a, true))
		require.Equal(t, purgatory.Held, w.submit(s, true))
		wait(2 * time.Minute)
		require.Empty(t, w.git.Calls())
		want, err := w.p.AuthorizedState(t.Context(), repoOf(alice))
		require.NoError(t, err)
		require.Equal(t, s.ID, want.ID.String(), "a push is judged by what waits")
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, object(1))
		w.p.Pushed(t.Context(), repoOf(alice), []nip34.RefName{branch("main")})
		wait(time.Millisecond)
		require.True(t, w.relay.has(a))
		require.True(t, w.relay.has(s))
		wait(10 * time.Minute)
		require.Empty(t, w.git.Calls())
	})
}

// A restart keeps deadlines, and missing data is fetched again.
func TestTrapP6P7_Restart(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(bob, now()-500, "b.example/r.git"))
		for _, u := range []string{"a.example/r.git", "b.example/r.git"} { // and not of no use, which is remembered
			w.git.Serve(clone(u), fetchtest.Server{Err: errors.New("busy")})
		}
		a, s := announce(alice, now(), "a.example/r.git"), says(alice, now(), "main", 1)
		p := pull(carol, repoOf(bob), 7, graspsync.KindPullRequest)
		u := pull(carol, repoOf(bob), 8, graspsync.KindPullRequestUpdate)
		for _, ev := range []*nostrEvent{a, s, p, u} {
			w.held(ev)
		}
		wait(20 * time.Minute)
		w.stop()
		calls := len(w.git.Calls())
		w.start()
		require.Len(t, w.p.Held(nostrFilter{}), 4)
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		w.git.Serve(clone("b.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(7)}})
		wait(2 * time.Minute) // backoffs survive as well
		require.Greater(t, len(w.git.Calls()), calls)
		for _, ev := range []*nostrEvent{a, s, p} {
			require.True(t, w.relay.has(ev))
		}
		wait(7 * time.Minute)
		require.Len(t, w.p.Held(nostrFilter{}), 1)
		wait(2 * time.Minute)
		require.Empty(t, w.p.Held(nostrFilter{}), "at its original deadline")
	})
}

// An announcement without data expires softly. Its repository is removed, and a state event revives
// it for a day.
func TestSoftExpiry(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := announce(alice, now(), "a.example/r.git")
		w.held(a)
		wait(31 * time.Minute)
		require.False(t, w.git.Has(repoOf(alice)))
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		wait(12 * time.Hour)
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(time.Minute)
		require.True(t, w.relay.has(a))
		require.True(t, w.relay.has(s))
	})
}

// Missing data of stored events is fetched at the hourly check.
func TestBeyondExpiry(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "a.example/r.git"), says(alice, now()-400, "main", 1))
		wait(20 * time.Minute)
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		wait(3 * time.Hour)
		require.Equal(t, object(1), w.git.RefsOf(repoOf(alice))[branch("main")])
	})
}
