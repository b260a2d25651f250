package purgatory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// slowGit walks histories with configurable speed. A walk that is cut short starts from the
// beginning.
type slowGit struct {
	*fetchtest.Fake
	cost func(ref graspsync.RepoRef, ids []nip34.ObjectID) time.Duration

	mu    sync.Mutex
	dirs  map[string]graspsync.RepoRef
	walks map[graspsync.RepoRef]int
	locks map[graspsync.RepoRef]int
}

func newSlowGit() *slowGit {
	return &slowGit{
		Fake: fetchtest.New(), dirs: make(map[string]graspsync.RepoRef),
		walks: make(map[graspsync.RepoRef]int), locks: make(map[graspsync.RepoRef]int),
	}
}

func (s *slowGit) Lock(ctx context.Context, ref graspsync.RepoRef) (string, func(), error) {
	dir, unlock, err := s.Fake.Lock(ctx, ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.dirs[dir] = ref
		s.locks[ref]++
	}
	return dir, unlock, err
}

func (s *slowGit) Missing(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	s.mu.Lock()
	ref := s.dirs[dir]
	s.walks[ref]++
	s.mu.Unlock()
	timer := time.NewTimer(s.cost(ref, ids))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.Fake.Missing(ctx, dir, ids)
}

func (s *slowGit) UpdateRefs(ctx context.Context, dir string, c []refplan.RefChange, head nip34.RefName) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.Fake.UpdateRefs(ctx, dir, c, head)
}

// beside runs an attack and returns how long a complete state of another owner is held during the
// attack.
func beside(t *testing.T, cost time.Duration, attack func(w *world, git *slowGit, at nostr.Timestamp)) (took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		victim := relaytest.NewKey("v1") // sorts last
		git := newSlowGit()
		git.cost = func(ref graspsync.RepoRef, _ []nip34.ObjectID) time.Duration {
			if ref.Owner == victim.PubKey() {
				return 10 * time.Millisecond
			}
			return cost
		}
		w := newWorld(t, purgatory.Config{})
		w.repos, w.fetcher = git, git
		w.start()
		at := now()
		w.relay.put(announce(victim, at-100), says(victim, at-100, "main", 1))
		git.Put(repoOf(victim), object(1), object(2))
		git.Push(repoOf(victim), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		wait(time.Second)
		attack(w, git, at)
		wait(time.Second)
		s := says(victim, at+1, "main", 2)
		w.held(s)
		began := time.Now()
		for !w.relay.has(s) && time.Since(began) < 29*time.Minute {
			wait(100 * time.Millisecond)
		}
		require.True(t, w.relay.has(s))
		took = time.Since(began)
		w.stop()
		require.Empty(t, w.git.Broken())
	})
	return took
}

// heavy adds a repository that waits for existing data with a slow walk.
func heavy(w *world, git *slowGit, key *relaytest.Key, identifier string, at nostr.Timestamp, n int) {
	d := nostrTag{"d", identifier}
	w.held(key.Event(at, graspsync.KindAnnouncement, "", d))
	git.Put(key.Ref(identifier), object(n))
	w.held(key.Event(at, graspsync.KindState, "", d, nostrTag{"refs/heads/main", object(n).String()}))
}

// Repositories with slow histories do not delay others with the same identifier. Before, all were
// examined in one time budget.
func TestHeavyTreesUnderTheSameIdentifier(t *testing.T) {
	alone := beside(t, 0, func(*world, *slowGit, nostr.Timestamp) {})
	for _, listed := range []bool{false, true} {
		took := beside(t, 110*time.Second, func(w *world, git *slowGit, at nostr.Timestamp) {
			for i, seed := range []string{"a3", "a4", "a2"} {
				key := relaytest.NewKey(seed)
				if listed { // states of the victim concern their repositories as well
					w.held(listing(key, at-1, relaytest.NewKey("v1")))
					git.Put(key.Ref("r"), object(70+i))
				} else {
					heavy(w, git, key, "r", at, 70+i)
				}
				w.held(says(key, at, "main", 70+i))
			}
		})
		t.Logf("alone after %v, beside three owners with heavy trees (listed: %v) after %v", alone, listed, took)
		require.LessOrEqual(t, took, alone+10*time.Second)
	}
}

// Slow repositories of one key do not use all slots.
func TestManySlowRepositoriesOfOneKey(t *testing.T) {
	alone := beside(t, 0, func(*world, *slowGit, nostr.Timestamp) {})
	for _, n := range []int{4, 40} {
		took := beside(t, 4*time.Minute, func(w *world, git *slowGit, at nostr.Timestamp) {
			key := relaytest.NewKey("a3")
			for i := range n {
				heavy(w, git, key, fmt.Sprint("m", i), at, 70)
			}
		})
		t.Logf("alone after %v, beside %d slow repositories of one key after %v", alone, n, took)
		require.LessOrEqual(t, took, alone+10*time.Second)
	}
}

// A slow pull request does not keep the states of its repository from being served.
func TestHeavyPullRequest(t *testing.T) {
	victim := relaytest.NewKey("v1")
	took := beside(t, 0, func(w *world, git *slowGit, at nostr.Timestamp) {
		git.cost = func(_ graspsync.RepoRef, ids []nip34.ObjectID) time.Duration {
			if ids[0] == object(70) {
				return time.Hour
			}
			return 0
		}
		git.Put(repoOf(victim), object(70))
		w.held(pull(dave, repoOf(victim), 70, graspsync.KindPullRequest))
	})
	require.LessOrEqual(t, took, 10*time.Second)
}

// A state that git refuses does not block others. Before, it was chosen in each release, and the
// repository was not served while it was held.
func TestUnfitStateHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Membership: unanswered()})
		aligns := 0
		w.git.FailWith(func(op string) error {
			if op == "align" {
				aligns++
			}
			return nil
		})
		w.start()
		at := now()
		w.relay.put(listing(alice, at-100, bob),
			says(alice, at-100, "main", 1))
		w.git.Put(repoOf(alice), object(1), object(2), object(3), object(5))
		w.git.Tree(object(3))
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		unfit := says(bob, at+10, "main", 3)
		w.held(unfit)
		wait(time.Minute)
		older, pr := says(alice, at+1, "main", 2), pull(carol, repoOf(alice), 5, graspsync.KindPullRequest)
		w.held(older)
		w.held(pr)
		wait(time.Second)
		require.True(t, w.relay.has(older))
		require.True(t, w.relay.has(pr))
		require.LessOrEqual(t, aligns, 5)
		before := aligns
		w.p.Pushed(t.Context(), repoOf(alice), nil)
		wait(20 * time.Minute)
		require.Equal(t, before, aligns, "it is found once")
		require.False(t, w.relay.has(unfit))
		wait(time.Hour)
		require.Empty(t, w.p.Held(nostrFilter{}))
		w.stop()
		require.Empty(t, w.git.Broken())
	})
}

// Objects are copied from another repository that already had them and needs nothing. Before, that
// happened only in the hourly check, and the objects were fetched from servers.
func TestSharedWithWhoComesLater(t *testing.T) {
	for _, oneSided := range []bool{false, true} {
		run(t, purgatory.Config{Membership: nip34.Membership{OneSided: oneSided}}, func(t *testing.T, w *world) {
			d := nostrTag{"d", "r"}
			w.relay.put(listing(alice, now()-100, bob), says(alice, now()-100, "main", 1))
			w.git.Put(repoOf(alice), object(1))
			w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
			wait(time.Second)
			a := bob.Event(now(), graspsync.KindAnnouncement, "", d, nostrTag{"maintainers", alice.Hex()}, nostrTag{"clone", "https://a.example/r.git"})
			w.held(a)
			wait(100 * time.Millisecond)
			require.True(t, w.relay.has(a))
			require.Equal(t, object(1), w.git.RefsOf(repoOf(bob))[branch("main")])
			require.Empty(t, w.git.Calls())
		})
	}
}

// A repository that merely lists another owner as maintainer gets no objects from that owner.
func TestNotSharedWithStrangers(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-100), says(alice, now()-100, "main", 1))
		w.git.Put(repoOf(alice), object(1))
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		w.held(announce(dave, now()))
		w.held(says(dave, now(), "main", 1))
		wait(2 * time.Hour)
		require.Empty(t, w.git.Objects(repoOf(dave)))
	})
}
