package purgatory_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// A client can submit an expired event again. Before, it was refused for a week.
func TestSubmittedAgainAfterExpiry(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-100))
		w.git.Put(repoOf(alice))
		s, p := says(alice, now(), "main", 1), pull(carol, repoOf(alice), 5, graspsync.KindPullRequest)
		w.held(s)
		w.held(p)
		wait(31 * time.Minute)
		require.Empty(t, w.p.Held(nostrFilter{}))
		for _, ev := range []*nostrEvent{s, p} {
			require.Equal(t, purgatory.Refused, w.submit(ev, false), "by sync it stays refused")
			require.Equal(t, purgatory.Held, w.submit(ev, true))
			require.Equal(t, purgatory.Held, w.submit(ev, false), "it waits")
		}
		w.stop()
		w.start()
		require.Len(t, w.p.Held(nostrFilter{}), 2)
		w.git.Push(repoOf(alice), nil, object(1), object(5))
		w.p.Pushed(t.Context(), repoOf(alice), nil)
		wait(time.Second)
		require.True(t, w.relay.has(s))
		require.True(t, w.relay.has(p))
	})
}

// If a client resubmits a softly expired announcement, its repository is recreated. Before, there
// was no repository to push to.
func TestSoftlyExpiredAndSubmittedAgain(t *testing.T) {
	for name, again := range map[string]func(a *nostrEvent) *nostrEvent{
		"the same":        func(a *nostrEvent) *nostrEvent { return a },
		"a newer version": func(*nostrEvent) *nostrEvent { return announce(alice, now()) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				a := announce(alice, now())
				require.Equal(t, purgatory.Held, w.submit(a, true))
				wait(31 * time.Minute)
				require.False(t, w.git.Has(repoOf(alice)))
				require.Equal(t, purgatory.Held, w.submit(again(a), false))
				wait(time.Second)
				require.False(t, w.git.Has(repoOf(alice)), "sync revives nothing")
				require.Equal(t, purgatory.Held, w.submit(again(a), true))
				require.True(t, w.git.Has(repoOf(alice)), "a push is next")
				require.Len(t, w.p.Announcements("r"), 1)
				wait(29 * time.Minute)
				require.True(t, w.git.Has(repoOf(alice)))
				wait(2 * time.Minute)
				require.False(t, w.git.Has(repoOf(alice)))
			})
		})
	}
}

// An event does not expire during a fetch of its data. An announcement is also held during a fetch
// for its state. Before, the data was discarded.
func TestExpiryWaitsForAFetch(t *testing.T) {
	for _, kind := range []string{"state", "pull request", "announcement", "announcement of a stored state"} {
		t.Run(kind, func(t *testing.T) {
			var log racetest.Buffer
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			run(t, purgatory.Config{Logger: logger, Times: purgatory.Times{Hold: 5 * time.Minute}}, func(t *testing.T, w *world) {
				a, s := announce(alice, now()-100, "a.example/r.git"), says(alice, now(), "main", 1)
				served, waits := []*nostrEvent{a}, []*nostrEvent{s}
				switch kind {
				case "pull request":
					waits = []*nostrEvent{pull(carol, repoOf(alice), 1, graspsync.KindPullRequest)}
				case "announcement":
					served, waits = nil, []*nostrEvent{a, s}
				case "announcement of a stored state":
					served, waits = []*nostrEvent{s}, []*nostrEvent{a}
				}
				w.relay.put(served...)
				w.git.Put(repoOf(alice))
				w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}, Delay: 9 * time.Minute})
				for _, ev := range waits {
					w.held(ev)
				}
				wait(8 * time.Minute)
				require.Len(t, w.p.Held(nostrFilter{}), len(waits), "its data is being fetched")
				wait(2 * time.Minute)
				for _, ev := range waits {
					require.True(t, w.relay.has(ev))
				}
				require.Equal(t, object(1), w.git.Objects(repoOf(alice))[0])
				require.Less(t, strings.Count(log.String(), "git fetch queued"), 10, "the wait releases nothing")
			})
		})
	}
}
