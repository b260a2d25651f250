package purgatory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
)

func (w *world) explained(ev *nostrEvent) purgatory.EventExplanation {
	w.t.Helper()
	x, err := w.p.ExplainEvent(w.t.Context(), eventtest.Of(ev).ID)
	require.NoError(w.t, err)
	return x
}

// Whoever asks about an event that waits hears for which object, who was asked and said what, and
// when that goes on; and afterwards how it ended.
func TestExplainWaiting(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(7)}})
		w.git.Serve(clone("b.example/r.git"), fetchtest.Server{Err: purgatory.ErrBroken})
		a, s := announce(alice, now(), "a.example/r.git", "b.example/r.git"), says(alice, now(), "main", 1)
		w.held(a)
		w.held(s)
		wait(2 * time.Second)

		x := w.explained(s)
		require.Equal(t, "waits", x.Is)
		require.Equal(t, "state", x.Class)
		require.Len(t, x.Data, 1)
		data := x.Data[0]
		require.Equal(t, []purgatory.MissingObject{{ID: object(1).String(), For: []string{"refs/heads/main"}}}, data.Missing)
		require.Len(t, data.Servers, 2)
		require.Equal(t, "not found: it has none of the objects", data.Servers[0].Answer)
		require.WithinDuration(t, time.Now(), data.Servers[0].Asked, 3*time.Second)
		require.Contains(t, data.Servers[1].Answer, "of no use")
		require.Greater(t, time.Until(data.Servers[1].Until), 30*time.Second, "it is left alone")
		require.Greater(t, time.Until(data.Next), time.Second)
		text := x.String()
		for _, want := range []string{
			"waits for git data since", "git object " + object(1).String() + " of refs/heads/main", "asked https://a.example/r.git at ",
			"not found", "not asked again before", "UTC; 1 in a row did not get everything.",
		} {
			require.Contains(t, text, want)
		}
		r, err := w.p.ExplainRepo(t.Context(), repoOf(alice))
		require.NoError(t, err)
		require.Len(t, r.Waiting, 2)
		require.Contains(t, r.String(), s.ID)

		wait(31 * time.Minute)
		x = w.explained(s)
		require.Equal(t, "expired", x.Is)
		require.Contains(t, x.String(), "in vain")
		require.Equal(t, purgatory.Refused, w.submit(s, false))
		wait(time.Second)
		x = w.explained(s)
		require.Equal(t, "refused", x.Is)
		require.Contains(t, x.String(), "its git data never came")
		r, err = w.p.ExplainRepo(t.Context(), repoOf(alice))
		require.NoError(t, err)
		require.NotEmpty(t, r.Ended)

		never := says(bob, now(), "main", 3)
		x = w.explained(never)
		require.Equal(t, "unknown", x.Is)
		require.Empty(t, x.String())
	})
}

// What was released says so, and a repository that lacks nothing that it does.
func TestExplainReleased(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		s := says(alice, now(), "main", 1)
		w.held(announce(alice, now(), "a.example/r.git"))
		w.held(s)
		wait(2 * time.Second)
		x := w.explained(s)
		require.Equal(t, "released", x.Is)
		require.Contains(t, x.String(), "it was released")
		r, err := w.p.ExplainRepo(t.Context(), repoOf(alice))
		require.NoError(t, err)
		require.Empty(t, r.Missing)
		require.Contains(t, r.String(), "is missing: all that its states and pull requests name is here")
	})
}

// Where nobody can be asked it is said that a push is needed.
func TestExplainNobodyToAsk(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.held(announce(alice, now()))
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(2 * time.Second)
		require.Contains(t, w.explained(s).String(), "It has to be pushed to us")
		pr := pull(bob, repoOf(alice), 9, graspsync.KindPullRequest)
		w.held(pr)
		wait(2 * time.Second)
		require.Contains(t, w.explained(pr).String(), "of pull request "+pr.ID)
	})
}

// What was given up was forgotten by a restart, and its repository was said to be complete: so it was
// before a restart.
func TestExplainGivenUp(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		w.held(announce(alice, now()-100, "a.example/r.git"))
		w.held(says(alice, now()-100, "main", 1))
		wait(2 * time.Second)
		repo := func() purgatory.RepoExplanation {
			x, err := w.p.ExplainRepo(t.Context(), repoOf(alice))
			require.NoError(t, err)
			return x
		}
		require.Contains(t, repo().String(), "all that its states and pull requests name is here")
		lost := says(alice, now(), "main", 2)
		w.held(lost)
		wait(31 * time.Minute)
		at := w.explained(lost).At
		require.NotZero(t, at)

		for _, restarts := range []string{"none", "one", "two"} {
			if restarts != "none" {
				wait(time.Hour)
				w.stop()
				w.start()
			}
			x := repo()
			require.NotContains(t, x.String(), "complete", restarts)
			require.Contains(t, x.String(), "given up", restarts)
			require.Contains(t, x.String(), lost.ID, restarts)
			require.Len(t, x.GivenUp, 1, restarts)
			if restarts == "none" { // what servers said is not kept
				require.Contains(t, w.explained(lost).String(), "asked https://a.example/r.git at ")
				require.Contains(t, x.String(), "asked https://a.example/r.git at ")
				require.Contains(t, x.String(), "not found: it has none of the objects")
			}
			require.True(t, at.Equal(x.GivenUp[0].At), restarts)
			require.Equal(t, "expired", w.explained(lost).Is)
			require.Equal(t, "state", w.explained(lost).Class)
			other, err := w.p.ExplainRepo(t.Context(), repoOf(bob))
			require.NoError(t, err)
			require.NotContains(t, other.String(), lost.ID)
		}

		// Once a client has submitted it again, and its data has come, nothing is given up any more.
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1), object(2)}})
		require.Equal(t, purgatory.Held, w.submit(lost, true))
		wait(10 * time.Minute)
		require.Equal(t, "released", w.explained(lost).Is)
		require.Contains(t, repo().String(), "all that its states and pull requests name is here")
		require.Empty(t, repo().GivenUp)
	})
}

// What an older version gave up has no repository on the disk: no repository is said to be complete then.
func TestExplainNothingIsHuntedForAnyMore(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.held(announce(bob, now(), "a.example/r.git"))
		w.held(says(bob, now(), "main", 1))
		wait(time.Hour)
		x, err := w.p.ExplainRepo(t.Context(), repoOf(bob))
		require.NoError(t, err)
		require.Contains(t, x.String(), "is hunted for any more")
		require.Contains(t, x.String(), "given up")
		require.NotContains(t, x.String(), "waiting to be looked at")
	})
}

func TestExplainGivenUpByAnOlderVersion(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.serveAlice()
		lost := says(bob, now(), "main", 2)
		until, err := time.Now().Add(time.Hour).UTC().MarshalText()
		require.NoError(t, err)
		w.stop()
		err = w.state.Put(t.Context(), state.Record{Key: "purgatory/expired/" + lost.ID, Value: until})
		require.NoError(t, err)
		w.start()
		require.Equal(t, "expired", w.explained(lost).Is)
		x, err := w.p.ExplainRepo(t.Context(), repoOf(alice))
		require.NoError(t, err)
		require.NotContains(t, x.String(), "complete")
		require.Contains(t, x.String(), "not known")
		wait(2 * time.Hour)
		x, err = w.p.ExplainRepo(t.Context(), repoOf(alice))
		require.NoError(t, err)
		require.Contains(t, x.String(), "all that its states and pull requests name is here")
	})
}

// An announcement alone was said to wait to be looked at, and nobody was told that a push is missing.
func TestExplainAnnouncementAlone(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		repo := func() string {
			wait(2 * time.Second)
			x, err := w.p.ExplainRepo(t.Context(), repoOf(alice))
			require.NoError(t, err)
			return x.String()
		}
		w.held(announce(alice, now()))
		require.Contains(t, repo(), "is served once a state of it (kind 30618) is here")
		w.held(says(alice, now(), "main", 1))
		require.NotContains(t, repo(), "kind 30618")
		require.Contains(t, repo(), "It has to be pushed to us")
	})
}

// What waits for somebody to have a say was said to have all its data.
func TestExplainWaitingIsNotComplete(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		s := says(bob, now(), "main", 1) // of whom nothing else is known
		w.held(s)
		require.NotContains(t, w.explained(s).String(), "complete")
		require.Contains(t, w.explained(s).String(), "for somebody to have a say")
	})
}
