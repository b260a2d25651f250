package purgatory_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// watchedRepos reports locks and creations of repositories.
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

// An announcement does not expire while a release creates its repository. Before, a repository
// without announcement stayed forever.
func TestAnnouncementsDoNotExpireWhileTheirRepositoryIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Times: purgatory.Times{Hold: 2 * time.Minute}}.With(purgatory.Fixed{MaxHold: 10 * time.Minute, SoftExpiry: time.Hour}))
		repos := &watchedRepos{Fake: w.git}
		w.repos = staying{repos} // hides it from later listings
		made := 0
		repos.making = func(_ context.Context, ref graspsync.RepoRef) {
			if w.git.Has(ref) { // a second creation by a later release
				return
			}
			if made++; made == 1 {
				time.Sleep(3 * time.Minute) // a slow disk; the release ends by its deadline, and another follows
			}
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
		w.stop()
	})
}

// A state does not expire while a release moves its refs, because its announcement would be served
// without them.
func TestStatesDoNotExpireDuringTheirRelease(t *testing.T) {
	run(t, purgatory.Config{Times: purgatory.Times{Hold: 2 * time.Second}}, func(t *testing.T, w *world) {
		aligned := 0
		w.git.FailWith(func(op string) error {
			if op == "align" {
				aligned++
				time.Sleep(3 * time.Second) // a slow disk
			}
			return nil
		})
		a, s := announce(alice, now()), says(alice, now(), "main", 1)
		w.held(a)
		w.git.Put(repoOf(alice), object(1))
		w.held(s)
		wait(time.Minute)
		require.Positive(t, aligned)
		require.True(t, w.relay.has(a))
		require.True(t, w.relay.has(s))
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, w.git.RefsOf(repoOf(alice)))
	})
}

// staying are repositories that Owned does not list.
type staying struct{ *watchedRepos }

func (staying) Owned(context.Context, graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return func(func(graspsync.RepoRef, error) bool) {}
}
