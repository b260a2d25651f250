package purgatory_test

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// watchedRepos tells when a repository is about to be locked, and when it was made.
type watchedRepos struct {
	*fetchtest.Fake
	locking func(ref graspsync.RepoRef)
	making  func(ctx context.Context, ref graspsync.RepoRef)
}

func (r *watchedRepos) Lock(ctx context.Context, ref graspsync.RepoRef) (string, func(), error) {
	if r.locking != nil {
		r.locking(ref)
	}
	return r.Fake.Lock(ctx, ref)
}

func (r *watchedRepos) Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	if r.making != nil {
		r.making(ctx, ref)
	}
	return r.Fake.Create(ctx, ref, format)
}

// When the announcement of another repository went while that was aligned with a state
// of ours, nothing that waited for it ever expired.
func TestNothingIsPinnedWhenAnAnnouncementGoesDuringALook(t *testing.T) {
	run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
		w.stop()
		repos := &watchedRepos{Fake: w.git}
		w.repos = repos
		theirs := bob.Event(now()-100, graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, nostrTag{"maintainers", alice.Hex()})
		w.relay.put(announce(alice, now()-100), theirs)
		w.git.Put(repoOf(alice), object(1))
		w.git.Put(repoOf(bob))
		w.start()
		for i := range 50 { // what it lacks
			w.held(says(bob, now()-100+nostrTime(i), "main", 1000+i))
		}
		wait(time.Minute)
		gone := sync.OnceFunc(func() { w.relay.gone(theirs) })
		var aligning atomic.Bool
		w.git.FailWith(func(op string) error {
			if op == "align" {
				aligning.Store(true)
			}
			return nil
		})
		repos.locking = func(ref graspsync.RepoRef) {
			if aligning.Load() && ref == repoOf(bob) {
				gone()
			}
		}
		ours := says(alice, now(), "main", 1)
		w.held(ours)
		wait(time.Second)
		require.True(t, w.relay.has(ours))
		require.Zero(t, w.p.Sizes()["pinned"])
		wait(2 * time.Hour)
		require.Empty(t, w.p.Held(nostrFilter{}))
	})
}

// An announcement expired while a look was making its repository, which was left there for
// good: nobody announces it, nor knows of it.
func TestAnnouncementsDoNotExpireWhileTheirRepositoryIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Times: purgatory.Times{Hold: 2 * time.Minute}}.With(purgatory.Fixed{MaxHold: 10 * time.Minute, SoftExpiry: time.Hour}))
		repos := &watchedRepos{Fake: w.git}
		w.repos = staying{repos} // nobody finds it later
		made := 0
		repos.making = func(_ context.Context, ref graspsync.RepoRef) {
			if w.git.Has(ref) { // asked for again by a look that began behind this one
				return
			}
			made++
			time.Sleep(3 * time.Minute) // a disk that is slow
		}
		w.start()
		w.held(announce(alice, now()))
		w.held(says(alice, now(), "main", 1))
		wait(2*time.Minute + 30*time.Second)
		require.Equal(t, 1, made)
		require.Len(t, w.p.Announcements("r"), 1, "it waits as long as that is being made")
		wait(2 * time.Minute)
		require.Empty(t, w.p.Announcements("r"))
		require.False(t, w.git.Has(repoOf(alice)))
		wait(2 * time.Hour)
		require.Empty(t, w.p.Held(nostrFilter{}))
		require.Zero(t, w.p.Sizes()["pinned"]+w.p.Sizes()["ending"])
		w.stop()
	})
}

// staying are repositories that nobody finds who asks what is there.
type staying struct{ *watchedRepos }

func (staying) Owned(context.Context, graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return func(func(graspsync.RepoRef, error) bool) {}
}
