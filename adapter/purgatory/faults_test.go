package purgatoryadapter_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// brokenStore fails after it has returned some results.
type brokenStore struct{ relaysync.Store }

func (brokenStore) Has(context.Context, []graspsync.EventID) ([]bool, error) { return nil, errDisk }

func (s brokenStore) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for ev, err := range s.Store.Events(ctx, filter) {
			if filter.IDs == nil && !yield(ev, err) {
				return
			}
		}
		yield(graspsync.Event{}, errDisk)
	}
}

func (brokenStore) Deleted(context.Context, graspsync.Event) (bool, error) { return false, errDisk }

func (brokenStore) Save(context.Context, []graspsync.Incoming) ([]graspsync.Outcome, error) {
	return nil, errDisk
}

// The partial results of a failing store are not complete: purgatory and pushes get the error.
// Otherwise repositories would count as not announced, and refs as refs without an event.
func TestEachFaultOfTheStoreIsTold(t *testing.T) {
	racetest.Amounts(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		pr := stranger.PullRequest(1, owner.Ref("repo"), "x", commit)
		id, err := graspsync.ParseEventID(pr.ID)
		require.NoError(t, err)
		for _, ev := range []*nostr.Event{owner.Hosted(1, "repo", us), owner.State(1, "repo", map[string]string{"refs/heads/main": commit}, "main"), pr} {
			_, err := r.store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(ev)}})
			require.NoError(t, err)
		}
		store := brokenStore{r.store}
		told := 0
		tell := func(graspsync.Event) { told++ }
		host := purgatoryadapter.Host{Store: store, Lists: r.policy.Lists, Removed: tell, Release: purgatoryadapter.Save(store, tell)}
		relay := host.Relay()
		ref := owner.Ref("repo")
		authority := purgatoryadapter.Authority{Store: store, Purgatory: r.waits}
		for what, do := range map[string]func() error{
			"save": func() error { return relay.Save(t.Context(), eventtest.Of(pr)) },
			"events": func() (last error) {
				for _, err := range relay.Events(t.Context(), nostr.Filter{}) {
					require.NoError(t, last, "after an error nothing follows")
					last = err
				}
				return last
			},
			"deleted": func() error { _, err := relay.Deleted(t.Context(), eventtest.Of(pr)); return err },
			"tip":     func() error { _, _, err := authority.Tip(t.Context(), ref, id); return err },
			"ration": func() error {
				_, err := authority.AdmitPullRefs(t.Context(), ref, "", []graspsync.EventID{id}, 1)
				return err
			},
		} {
			require.ErrorIs(t, do(), errDisk, what)
		}
		require.Zero(t, told)
	})
}

// The tip of a held or served pull request is known for its repository only.
func TestTips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		after(time.Minute)
		v, err := r.manager.Judge(t.Context(), eventtest.Of(owner.Hosted(at(time.Hour), "repo", us)))
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, v.Decision)
		waits := stranger.PullRequest(at(0), owner.Ref("repo"), "waits", commit)
		v, err = r.manager.Judge(t.Context(), eventtest.Of(waits))
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, v.Decision)
		served, other := stranger.PullRequest(at(0), owner.Ref("repo"), "served", commit), stranger.Issue(at(0), owner.Ref("repo"), "x")
		for _, ev := range []*nostr.Event{served, other} {
			_, err := r.store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(ev)}})
			require.NoError(t, err)
		}
		tip, err := nip34.ParseObjectID(commit)
		require.NoError(t, err)
		authority := purgatoryadapter.Authority{Store: r.store, Purgatory: r.waits}
		for _, c := range []struct {
			ev    *nostr.Event
			name  string
			tip   nip34.ObjectID
			known bool
		}{
			{waits, "repo", tip, true},
			{waits, "other", nip34.ObjectID{}, true},
			{served, "repo", tip, true},
			{served, "other", nip34.ObjectID{}, true},
			{other, "repo", nip34.ObjectID{}, true},
			{owner.Issue(1, owner.Ref("repo"), "nowhere"), "repo", nip34.ObjectID{}, false},
		} {
			id, err := graspsync.ParseEventID(c.ev.ID)
			require.NoError(t, err)
			got, known, err := authority.Tip(t.Context(), owner.Ref(c.name), id)
			require.NoError(t, err)
			require.Equal(t, c.known, known)
			require.Equal(t, c.tip, got)
		}
	})
}
