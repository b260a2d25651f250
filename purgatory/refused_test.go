package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// If the relay refuses an event permanently after its data arrived, its refs are removed and it
// counts as refused. Before, the refs stayed and it counted as released.
func TestRefsOfRefusedEventsDoNotStay(t *testing.T) {
	for name, refusal := range map[string]error{
		"refused": fmt.Errorf("%w: it has had enough", purgatory.ErrRefused),
		"failed":  fmt.Errorf("a broken disk"),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				w.serveAlice()
				newer, pull := says(alice, now(), "main", 2), proposes(carol, now(), 3, "")
				w.relay.refuse = func(ev *nostrEvent) error {
					if ev.ID == newer.ID || ev.ID == pull.ID {
						return refusal
					}
					return nil
				}
				w.held(says(alice, now(), "main", 2))
				w.held(pull)
				wait(time.Minute)
				st := w.p.Status()
				if name == "failed" {
					require.Equal(t, 1, st.States, "it is tried again")
					require.Zero(t, st.Ended[purgatory.NotStored])
					return
				}
				require.Equal(t, uint64(2), st.Ended[purgatory.NotStored])
				require.Zero(t, st.Ended[purgatory.Released])
				require.Zero(t, st.States+st.PullRequests)
				require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, w.git.RefsOf(repoOf(alice)))
				wait(3 * time.Hour)
				require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, w.git.RefsOf(repoOf(alice)))
			})
		})
	}
}

// If no state is stored, the refs that a refused state names are deleted in all repositories.
func TestRefusedStateLeavesNothing(t *testing.T) {
	run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
		w.relay.put(listing(alice, now()-100, bob), listing(bob, now()-100, alice))
		for _, k := range []graspsync.RepoRef{repoOf(alice), repoOf(bob)} {
			w.git.Put(k, object(1))
		}
		first := says(alice, now(), "main", 1)
		w.relay.refuse = func(ev *nostrEvent) error {
			moved := len(w.git.RefsOf(repoOf(alice))) + len(w.git.RefsOf(repoOf(bob)))
			require.Positive(t, moved, "they were moved for that")
			return purgatory.ErrRefused
		}
		w.held(first)
		wait(time.Minute)
		require.Equal(t, uint64(1), w.p.Status().Ended[purgatory.NotStored])
		require.Empty(t, w.git.RefsOf(repoOf(alice)))
		require.Empty(t, w.git.RefsOf(repoOf(bob)))
	})
}

// Refs of a refused state move back to the stored one although an announcement was deleted. Before,
// they were deleted, and the repository was not kept, because it had no refs.
func TestRefusedStateLeavesStoredRefsOfDeletedAnnouncement(t *testing.T) {
	run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
		w.serveAlice()
		his := listing(bob, now()-100, alice)
		w.relay.refuse = func(ev *nostrEvent) error {
			if ev.ID == his.ID {
				return fmt.Errorf("a broken disk")
			}
			w.relay.events = append(w.relay.events, bob.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", his.ID}))
			require.Contains(t, w.git.RefsOf(repoOf(bob)), branch("main"))
			return purgatory.ErrRefused
		}
		w.held(his)
		wait(time.Minute)
		require.Equal(t, object(1), w.git.RefsOf(repoOf(bob))[branch("main")])
		w.held(says(alice, now(), "main", 2))
		wait(time.Hour)
		require.Equal(t, uint64(1), w.p.Status().Dropped["departed"], "its refs are kept")
	})
}
