package purgatory_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
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
				w.held(newer)
				w.held(pull)
				wait(time.Minute)
				st := w.p.Status()
				if name == "failed" {
					require.Equal(t, 1, st.States, "it is tried again")
					require.Zero(t, st.Refused)
					return
				}
				require.Equal(t, uint64(2), st.Refused)
				require.Zero(t, st.Released)
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
		listing := func(k *relaytest.Key, other *relaytest.Key) *nostrEvent {
			return k.Event(now()-100, graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, nostrTag{"maintainers", other.PubKey().String()})
		}
		w.relay.put(listing(alice, bob), listing(bob, alice))
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
		require.Equal(t, uint64(1), w.p.Status().Refused)
		require.Empty(t, w.git.RefsOf(repoOf(alice)))
		require.Empty(t, w.git.RefsOf(repoOf(bob)))
	})
}

// The same for a repository whose release moved its refs before the state was refused.
func TestRefusedWhileAnotherLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Membership: unanswered()})
		slow := &slowDeletes{Store: w.state}
		moves := &slowMoves{Fake: w.git, slow: slow}
		w.state, w.fetcher = slow, moves
		w.start()
		listing := func(k *relaytest.Key, other *relaytest.Key) *nostrEvent {
			return k.Event(now()-100, graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, nostrTag{"maintainers", other.PubKey().String()})
		}
		w.relay.put(listing(alice, bob), listing(bob, alice))
		for _, k := range []graspsync.RepoRef{repoOf(alice), repoOf(bob)} {
			w.git.Put(k, object(1))
		}
		w.relay.refuse = func(ev *nostrEvent) error { return purgatory.ErrRefused }
		w.held(says(alice, now(), "main", 1))
		wait(time.Minute)
		require.Positive(t, moves.moved.Load())
		require.Equal(t, uint64(1), w.p.Status().Refused)
		require.Empty(t, w.git.RefsOf(repoOf(alice)))
		require.Empty(t, w.git.RefsOf(repoOf(bob)))
		w.stop()
	})
}

// slowDeletes is a store that deletes records in ten seconds.
type slowDeletes struct {
	state.Store
	deleting atomic.Bool
}

func (s *slowDeletes) Delete(ctx context.Context, keys ...string) error {
	if !strings.HasPrefix(keys[0], "purgatory/entry/") {
		return s.Store.Delete(ctx, keys...)
	}
	s.deleting.Store(true)
	time.Sleep(10 * time.Second)
	s.deleting.Store(false)
	return s.Store.Delete(ctx, keys...)
}

// slowMoves is git that moves refs slowly while records are deleted.
type slowMoves struct {
	*fetchtest.Fake
	slow  *slowDeletes
	moved atomic.Int32
}

func (s *slowMoves) UpdateRefs(ctx context.Context, dir string, changes []purgatory.RefChange, head nip34.RefName) error {
	if s.slow.deleting.Load() {
		s.moved.Add(1)
		time.Sleep(20 * time.Second)
	}
	return s.Fake.UpdateRefs(ctx, dir, changes, head)
}

// A refused pull request to several repositories leaves no ref.
func TestRefusedPullRequestHasNoRef(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-100), says(alice, now()-100, "main", 1), announce(bob, now()-100), says(bob, now()-100, "main", 1))
		for _, ref := range []graspsync.RepoRef{repoOf(alice), repoOf(bob)} {
			w.git.Put(ref, object(1), object(2))
			w.git.Push(ref, map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		}
		w.relay.refuse = func(*nostrEvent) error { return purgatory.ErrRefused }
		both := carol.Event(now(), graspsync.KindPullRequest, "", nostrTag{"a", repoOf(alice).String()}, nostrTag{"a", repoOf(bob).String()},
			nostrTag{"c", object(2).String()})
		w.held(both)
		wait(5 * time.Minute)
		require.Zero(t, w.pullRefs(repoOf(alice)))
		require.Zero(t, w.pullRefs(repoOf(bob)))
		st := w.p.Status()
		require.Zero(t, st.Released)
		require.Zero(t, st.PullRequests)
		require.Equal(t, uint64(1), st.Refused)
	})
}
