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
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// brokenStore fails after it has given some of what it has.
type brokenStore struct{ relaysync.Store }

func (brokenStore) Has(context.Context, []graspsync.EventID) ([]bool, error) { return nil, errDisk }

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

func (brokenStore) Save(context.Context, []graspsync.Incoming) ([]graspsync.Outcome, error) {
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
		id, err := graspsync.ParseEventID(pr.ID)
		require.NoError(t, err)
		for _, ev := range []*nostr.Event{owner.Hosted(1, "repo", us), owner.State(1, "repo", map[string]string{"refs/heads/main": commit}, "main"), pr} {
			_, err := r.store.Save(t.Context(), []graspsync.Incoming{{Event: ev}})
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
			"relatives": func() error {
				_, err := relay.(purgatory.Related).Relatives(t.Context(), "repo", []graspsync.PubKey{ref.Owner})
				return err
			},
			"states":  func() error { _, err := relay.States(t.Context(), "repo"); return err },
			"deleted": func() error { _, err := relay.Deleted(t.Context(), pr); return err },
			"has":     func() error { _, err := relay.(purgatory.Knower).Has(t.Context(), id); return err },
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
			"ration": func() error { _, err := authority.Ration(t.Context(), ref, "", []graspsync.EventID{id}, 1); return err },
			"standings": func() error {
				pull, err := nip34.ParsePullRequest(pr)
				require.NoError(t, err)
				_, err = relay.(purgatory.PullLister).Standings(t.Context(), ref, []*nip34.PullRequest{pull}, nil)
				return err
			},
			"pushed": func() error { return authority.Pushed(t.Context(), ref, []nip34.RefName{nip34.EventRef(id)}) },
		} {
			require.ErrorIs(t, do(), errDisk, what)
		}
		require.Zero(t, told)
	})
}

// oddStore gives an answer too few, and of its events such as nobody should have stored.
type oddStore struct {
	relaysync.Store
	events []*nostr.Event
}

func (oddStore) Has(context.Context, []graspsync.EventID) ([]bool, error) { return nil, nil }

func (oddStore) Save(context.Context, []graspsync.Incoming) ([]graspsync.Outcome, error) {
	return nil, nil
}

func (s oddStore) Events(context.Context, nostr.Filter) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		for _, ev := range s.events {
			if !yield(ev, nil) {
				return
			}
		}
	}
}

// A store that answers something else than was asked is told of, and what can't be read
// says nothing of a pull request.
func TestOddAnswersOfAStore(t *testing.T) {
	pr := stranger.PullRequest(1, owner.Ref("repo"), "x", commit)
	pull, err := nip34.ParsePullRequest(pr)
	require.NoError(t, err)
	closes := owner.Status(2, 1632, pr)
	odd := func(change func(ev *nostr.Event)) *nostr.Event {
		ev := *closes
		ev.Tags = nostr.Tags{{"e", pr.ID}}
		change(&ev)
		return &ev
	}
	store := &oddStore{}
	relay := purgatoryadapter.Host{Store: store, Release: purgatoryadapter.Save(store)}.Relay()
	require.ErrorContains(t, relay.Save(t.Context(), pr), "0 outcomes of one event")
	_, err = relay.(purgatory.Knower).Has(t.Context(), pull.ID)
	require.ErrorContains(t, err, "0 answers")
	for what, c := range map[string]struct {
		ev   *nostr.Event
		want purgatory.PullStanding
	}{
		"author":         {odd(func(ev *nostr.Event) { ev.PubKey = "bad" }), 0},
		"id":             {odd(func(ev *nostr.Event) { ev.ID = "bad" }), 0},
		"no tag":         {odd(func(ev *nostr.Event) { ev.Tags = nil }), 0},
		"short tag":      {odd(func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"e"}, {}} }), 0},
		"other tag":      {odd(func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"q", pr.ID}} }), 0},
		"no id":          {odd(func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"e", "bad"}} }), 0},
		"another":        {odd(func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"e", closes.ID}} }), 0},
		"of a stranger":  {odd(func(ev *nostr.Event) { ev.PubKey = helper.Hex() }), 0},
		"of its author":  {odd(func(ev *nostr.Event) { ev.PubKey = stranger.Hex() }), purgatory.PullClosed},
		"words":          {odd(func(ev *nostr.Event) { ev.Kind = 1 }), purgatory.PullRegarded},
		"words of his":   {odd(func(ev *nostr.Event) { ev.Kind, ev.PubKey = 1, stranger.Hex() }), 0},
		"a comment":      {odd(func(ev *nostr.Event) { ev.Kind, ev.Tags = 1111, nostr.Tags{{"E", pr.ID}} }), purgatory.PullRegarded},
		"after odd ones": {odd(func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"e"}, {"e", "bad"}, {"e", pr.ID}} }), purgatory.PullClosed},
	} {
		store.events = []*nostr.Event{c.ev}
		got, err := relay.(purgatory.PullLister).Standings(t.Context(), owner.Ref("repo"), []*nip34.PullRequest{pull}, map[graspsync.PubKey]struct{}{owner.PubKey(): {}})
		require.NoError(t, err)
		require.Equal(t, c.want, got[pull.ID], what)
	}
}

// The tip of a pull request is what it says, if it is one and is for that repository,
// whether it waits or is served.
func TestTips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		after(time.Minute)
		v, err := r.manager.Judge(t.Context(), owner.Hosted(at(time.Hour), "repo", us))
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, v.Decision)
		waits := stranger.PullRequest(at(0), owner.Ref("repo"), "waits", commit)
		v, err = r.manager.Judge(t.Context(), waits)
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, v.Decision)
		served, other := stranger.PullRequest(at(0), owner.Ref("repo"), "served", commit), stranger.Issue(at(0), owner.Ref("repo"), "x")
		for _, ev := range []*nostr.Event{served, other} {
			_, err := r.store.Save(t.Context(), []graspsync.Incoming{{Event: ev}})
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
		require.Zero(t, authority.Displaced(owner.PubKey()))
	})
}
