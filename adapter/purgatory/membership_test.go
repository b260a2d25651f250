package purgatoryadapter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A state of an author who is only listed is neither held nor served and allows no push until the
// author lists the owner.
func TestAStateTakesAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			t: t, net: relaytest.NewNetwork(), store: memstore.New(), git: fetchtest.New(), kept: state.NewMemory(),
		}
		r.start()
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		hosted := func(k, other *relaytest.Key) *nostr.Event {
			return k.Announcement(at(time.Hour), "repo", []string{"wss://" + us, "wss://a.example"},
				[]string{k.CloneURL("wss://"+us, "repo"), "https://git.example/repo.git"}, other)
		}
		authority := purgatoryadapter.Authority{Store: r.store, Purgatory: r.waits}
		lists, returns := hosted(owner, helper), hosted(helper, owner)
		says := helper.State(at(time.Minute), "repo", map[string]string{"refs/heads/main": commit}, "main")
		a.Publish(lists, says)
		after(2 * time.Minute)
		require.Len(t, r.waits.Held(nostr.Filter{}), 1, "the announcement")
		decides, err := authority.AuthorizedState(t.Context(), owner.Ref("repo"))
		require.NoError(t, err)
		require.Nil(t, decides)

		a.Publish(returns)
		after(2 * time.Minute)
		require.Len(t, r.waits.Held(nostr.Filter{}), 3)
		decides, err = authority.AuthorizedState(t.Context(), owner.Ref("repo"))
		require.NoError(t, err)
		require.Equal(t, says.ID, decides.ID.String())
		main, err := nip34.ParseRefName("refs/heads/main")
		require.NoError(t, err)
		id, err := nip34.ParseObjectID(commit)
		require.NoError(t, err)
		refs := map[nip34.RefName]nip34.ObjectID{main: id}
		r.git.Push(owner.Ref("repo"), refs, id)
		require.NoError(t, authority.AfterPush(t.Context(), owner.Ref("repo"), []nip34.RefName{main}))
		after(2 * time.Minute)
		for _, ev := range []*nostr.Event{lists, returns, says} {
			require.True(t, r.has(ev))
		}
		require.Equal(t, refs, r.git.RefsOf(owner.Ref("repo")))
		require.Empty(t, r.git.Broken())
		r.stop()
	})
}

// A maintainer with a repository on other servers did not count, and a view of an owner who follows
// a lead ignored the lead. Their announcements are now stored as events without a repository,
// although they do not list us.
func TestMaintainersFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, net: relaytest.NewNetwork(), store: memstore.New(), git: fetchtest.New(), kept: state.NewMemory()}
		r.start()
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		announce := func(k *relaytest.Key, ago time.Duration, here string, roles ...nostr.Tag) *nostr.Event {
			ev := k.Announcement(at(ago), "repo", []string{"wss://" + here, "wss://a.example"},
				[]string{k.CloneURL("wss://"+here, "repo"), "https://git.example/repo.git"})
			ev.Tags = append(ev.Tags, roles...)
			k.Sign(ev)
			return ev
		}
		role := func(letter string, of *relaytest.Key, times ...string) nostr.Tag {
			return append(nostr.Tag{letter, of.Hex()}, times...)
		}
		authority := purgatoryadapter.Authority{Store: r.store, Purgatory: r.waits}
		decides := func() string {
			t.Helper()
			s, err := authority.AuthorizedState(t.Context(), owner.Ref("repo"))
			require.NoError(t, err)
			if s == nil {
				return ""
			}
			return s.ID.String()
		}
		owners := owner.State(at(time.Hour), "repo", map[string]string{"refs/heads/main": commit}, "main")
		helpers := helper.State(at(time.Minute), "repo", map[string]string{"refs/heads/main": commit}, "main")
		strangers := announce(stranger, time.Hour, "a.example", role("M", stranger), role("m", owner))
		listing := announce(owner, 4*time.Hour, us, role("M", owner), role("m", helper))
		a.Publish(listing, owners, helpers, strangers)
		after(2 * time.Minute)
		require.Equal(t, owners.ID, decides())

		answer := announce(helper, 3*time.Hour, "a.example", role("m", helper), role("M", owner))
		a.Publish(answer)
		after(2 * time.Minute)
		require.False(t, r.has(answer), "it waits with what lists it")
		require.Equal(t, helpers.ID, decides())
		require.False(t, r.has(strangers), "whom nobody lists")

		// The owner hands over and leaves. The owner's events stop counting when the lead takes
		// over.
		leaves := announce(owner, 2*time.Hour, us, role("M", helper), role("m", owner, "10", "20"))
		a.Publish(leaves)
		after(2 * time.Minute)
		require.Empty(t, decides(), "the lead names no lead")
		leads := announce(helper, time.Hour, "a.example", role("M", helper))
		a.Publish(leads, owner.State(at(0), "repo", map[string]string{"refs/heads/main": commit}, "main"))
		after(2 * time.Minute)
		require.Equal(t, helpers.ID, decides())

		main, err := nip34.ParseRefName("refs/heads/main")
		require.NoError(t, err)
		id, err := nip34.ParseObjectID(commit)
		require.NoError(t, err)
		refs := map[nip34.RefName]nip34.ObjectID{main: id}
		r.git.Push(owner.Ref("repo"), refs, id)
		require.NoError(t, authority.AfterPush(t.Context(), owner.Ref("repo"), []nip34.RefName{main}))
		after(2 * time.Minute)
		require.True(t, r.has(leaves))
		require.True(t, r.has(leads), "it went with that")
		require.Empty(t, r.waits.Held(nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}))
		require.True(t, r.has(helpers))
		require.Equal(t, refs, r.git.RefsOf(owner.Ref("repo")))
		require.Empty(t, r.git.Broken())
		_, unlock, err := r.git.Lock(t.Context(), helper.Ref("repo"))
		if err == nil {
			unlock()
		}
		require.ErrorIs(t, err, purgatory.ErrNoRepository, "nothing of theirs is served here")
		r.stop()
	})
}
