package purgatory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

func idOf(ev *nostrEvent) graspsync.EventID {
	id, _ := graspsync.ParseEventID(ev.ID)
	return id
}

// object256 returns a SHA-256 object id.
func object256(n int) nip34.ObjectID {
	id, _ := nip34.ParseObjectID(fmt.Sprintf("%064x", n))
	return id
}

// Data that was pushed before its pull request is used when it arrives. No server is asked, and no
// other staged object is imported.
func TestStagedDataIsTakenWhenItsEventComes(t *testing.T) {
	for name, kind := range map[string]int{"pull request": graspsync.KindPullRequest, "update": graspsync.KindPullRequestUpdate} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				w.relay.put(announce(alice, now()-500, "a.example/r.git"))
				w.git.Put(repoOf(alice), object(1))
				w.git.Needs(object(2), object(1), object(3))
				p := pull(bob, repoOf(alice), 2, kind)
				w.git.Stage(repoOf(alice), idOf(p), object(9), object(9)) // of a stranger
				w.git.Stage(repoOf(alice), idOf(p), object(2), object(2), object(3), object(66))
				w.p.Staged(repoOf(alice), []graspsync.EventID{idOf(p)})
				wait(10 * time.Minute)
				require.Empty(t, w.git.RefsOf(repoOf(alice)))
				require.Empty(t, w.p.Held(nostrFilter{}))
				w.held(p)
				wait(time.Second)
				require.True(t, w.relay.has(p))
				require.Equal(t, object(2), w.git.RefsOf(repoOf(alice))[refOf(p)])
				require.Empty(t, w.git.Staged(repoOf(alice), idOf(p)))
				require.NotContains(t, w.git.Objects(repoOf(alice)), object(66))
				require.NotContains(t, w.git.Objects(repoOf(alice)), object(9))
				require.Empty(t, w.git.Calls())
				require.Zero(t, w.p.Status().Fetches)
			})
		})
	}
}

// If the relay stored the event without Submit, its staged data is not deleted, and it gets its
// ref.
func TestStagedDataOfAnEventThatWasStoredElsewhere(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500))
		w.git.Put(repoOf(alice))
		p, other := pull(bob, repoOf(alice), 2, graspsync.KindPullRequest), pull(bob, repoOf(alice), 3, graspsync.KindPullRequest)
		w.git.Stage(repoOf(alice), idOf(p), object(2), object(2))
		w.relay.put(p, other)
		w.p.NotifyStored(eventtest.Of(p))
		w.p.NotifyStored(eventtest.Of(other))
		wait(time.Second)
		require.Equal(t, object(2), w.git.RefsOf(repoOf(alice))[refOf(p)])
		require.Len(t, w.git.RefsOf(repoOf(alice)), 1)
		require.Empty(t, w.git.Staged(repoOf(alice), idOf(p)))
		require.Zero(t, w.p.Status().PullRequests, "nothing waits")
	})
}

// lateRepos makes alice's release read bob's repository before bob's release starts, and end after
// bob's release has ended.
type lateRepos struct {
	*fetchtest.Fake
	began sync.Once
}

func (r *lateRepos) Lock(ctx context.Context, ref graspsync.RepoRef) (string, func(), error) {
	end, _ := ctx.Deadline()
	forOther := time.Until(end) < time.Second // the wait for the own lock is longer
	if ref == repoOf(bob) && !forOther {
		r.began.Do(func() { time.Sleep(time.Second) })
	}
	dir, unlock, err := r.Fake.Lock(ctx, ref)
	if err != nil || ref != repoOf(bob) || !forOther {
		return dir, unlock, err
	}
	return dir, func() {
		unlock()
		time.Sleep(2 * time.Second)
	}, nil
}

// Objects that a repository gains during the release of another one, which had already asked for
// them, are copied soon. Before, they were copied at the hourly check.
func TestGainedWhileAnotherOneIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		w.repos = &lateRepos{Fake: w.git}
		w.start()
		w.relay.put(announce(alice, now()-500), announce(bob, now()-500))
		w.git.Put(repoOf(alice))
		w.git.Put(repoOf(bob))
		p := carol.Event(now(), graspsync.KindPullRequest, "", nostrTag{"c", object(2).String()},
			nostrTag{"a", repoOf(alice).String()}, nostrTag{"a", repoOf(bob).String()})
		w.git.Stage(repoOf(bob), idOf(p), object(2), object(2))
		w.held(p)
		wait(1500 * time.Millisecond)
		require.Equal(t, object(2), w.git.RefsOf(repoOf(bob))[refOf(p)])
		wait(5 * time.Second)
		require.Equal(t, object(2), w.git.RefsOf(repoOf(alice))[refOf(p)])
		w.stop()
	})
}
