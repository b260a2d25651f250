package purgatoryadapter_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// brokenStore fails after it has given some of what it has.
type brokenStore struct{ relaysync.Store }

func (brokenStore) Has(context.Context, []filters.EventID) ([]bool, error) { return nil, errDisk }

func (s brokenStore) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		for ev, err := range s.Store.Events(ctx, filter) {
			if filter.IDs == nil && !yield(ev, err) {
				return
			}
		}
		yield(nil, errDisk)
	}
}

func (brokenStore) Deleted(context.Context, *nostr.Event) (bool, error) { return false, errDisk }

func (brokenStore) Save(context.Context, []relaysync.Incoming) ([]relaysync.Outcome, error) {
	return nil, errDisk
}

// What a failing store has given is not all there is: purgatory and who pushes are told of
// the failure, or repositories would be taken for ones that nobody has announced, and refs
// for those of events that never came.
func TestEachFaultOfTheStoreIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		pr := stranger.PullRequest(1, owner.Ref("repo"), "x", commit)
		id, err := filters.ParseEventID(pr.ID)
		require.NoError(t, err)
		for _, ev := range []*nostr.Event{owner.Hosted(1, "repo", us), owner.State(1, "repo", map[string]string{"refs/heads/main": commit}, "main"), pr} {
			_, err := r.store.Save(t.Context(), []relaysync.Incoming{{Event: ev}})
			require.NoError(t, err)
		}
		store := brokenStore{r.store}
		told := 0
		tell := func(*nostr.Event) { told++ }
		host := purgatoryadapter.Host{Store: store, Lists: r.policy.Lists, Removed: tell, Release: purgatoryadapter.Save(store, tell)}
		relay := host.Relay()
		ref := owner.Ref("repo")
		authority := purgatoryadapter.Authority{Store: store, Purgatory: r.waits}
		for what, do := range map[string]func() error{
			"save":          func() error { return relay.Save(t.Context(), pr) },
			"announcements": func() error { _, err := relay.Announcements(t.Context(), "repo"); return err },
			"states":        func() error { _, err := relay.States(t.Context(), "repo"); return err },
			"deleted":       func() error { _, err := relay.Deleted(t.Context(), pr); return err },
			"has":           func() error { _, err := relay.(purgatory.Knower).Has(t.Context(), id); return err },
			"pull requests": func() (last error) {
				for _, err := range relay.(purgatory.PullLister).Pulls(t.Context(), ref) {
					require.NoError(t, last, "after an error nothing follows")
					last = err
				}
				return last
			},
			"identifiers": func() (last error) {
				for _, err := range relay.Identifiers(t.Context()) {
					require.NoError(t, last, "after an error nothing follows")
					last = err
				}
				return last
			},
			"tip":    func() error { _, _, err := authority.Tip(t.Context(), ref, id); return err },
			"pushed": func() error { return authority.Pushed(t.Context(), ref, []nip34.RefName{nip34.EventRef(id)}) },
		} {
			require.ErrorIs(t, do(), errDisk, what)
		}
		require.Zero(t, told)
	})
}
