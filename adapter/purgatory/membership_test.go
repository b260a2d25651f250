package purgatoryadapter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Where listings must be returned, a state of who is merely listed is neither held nor
// served and allows no push; it is as soon as they list the owner.
func TestReciprocalMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			t: t, net: relaytest.NewNetwork(), store: memstore.New(), git: fetchtest.New(), kept: state.NewMemory(),
			members: nip34.Membership{Reciprocal: true},
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
		decides, err := authority.Authorised(t.Context(), owner.Ref("repo"))
		require.NoError(t, err)
		require.Nil(t, decides)

		a.Publish(returns)
		after(2 * time.Minute)
		require.Len(t, r.waits.Held(nostr.Filter{}), 3)
		decides, err = authority.Authorised(t.Context(), owner.Ref("repo"))
		require.NoError(t, err)
		require.Equal(t, says.ID, decides.ID.String())
		main, err := nip34.ParseRefName("refs/heads/main")
		require.NoError(t, err)
		id, err := nip34.ParseObjectID(commit)
		require.NoError(t, err)
		refs := map[nip34.RefName]nip34.ObjectID{main: id}
		r.git.Push(owner.Ref("repo"), refs, id)
		require.NoError(t, authority.Pushed(t.Context(), owner.Ref("repo"), []nip34.RefName{main}))
		after(2 * time.Minute)
		for _, ev := range []*nostr.Event{lists, returns, says} {
			require.True(t, r.has(ev))
		}
		require.Equal(t, refs, r.git.RefsOf(owner.Ref("repo")))
		require.Empty(t, r.git.Broken())
		r.stop()
	})
}
