package purgatoryadapter_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// elsewhere returns an announcement by k that does not list us, with listed maintainers.
func elsewhere(k *relaytest.Key, ago time.Duration, lists ...*relaytest.Key) *nostr.Event {
	return k.Announcement(at(ago), "repo", []string{"wss://a.example"}, []string{k.CloneURL("wss://a.example", "repo")}, lists...)
}

// here returns an announcement by k that lists us.
func here(k *relaytest.Key, ago time.Duration, lists ...*relaytest.Key) *nostr.Event {
	return k.Announcement(at(ago), "repo", []string{"wss://" + us, "wss://a.example"},
		[]string{k.CloneURL("wss://"+us, "repo"), "https://git.example/repo.git"}, lists...)
}

func crowd(n int) (out []*relaytest.Key) {
	for i := range n {
		out = append(out, relaytest.NewCheapKey(fmt.Sprint("crowd", i)))
	}
	return out
}

func (r *rig) maintainers() int { return r.waits.Status().MaintainerAnnouncements }

// crowded returns how often too many maintainers were listed.
func (r *rig) crowded() uint64 {
	return r.manager.Status().Events.Rejected["rate-limited: too many are listed as maintainers of repositories of this name"]
}

// serve makes the git data of the owner's state available.
func (r *rig) serve(k *relaytest.Key) {
	main, err := nip34.ParseRefName("refs/heads/main")
	require.NoError(r.t, err)
	id, err := nip34.ParseObjectID(commit)
	require.NoError(r.t, err)
	v, err := r.manager.Judge(r.t.Context(), eventtest.Of(k.State(at(0), "repo", map[string]string{"refs/heads/main": commit}, "main")))
	require.NoError(r.t, err)
	require.Equal(r.t, graspsync.Hold, v.Decision)
	r.git.Push(k.Ref("repo"), map[nip34.RefName]nip34.ObjectID{main: id}, id)
	r.waits.Pushed(r.t.Context(), k.Ref("repo"), []nip34.RefName{main})
}

// A free key with an announcement and no push caused 256 announcements of others to be stored
// forever, for each announcement, and every lookup of the identifier read them.
func TestAWaitingOwnerHasNothingStored(t *testing.T) {
	racetest.Amounts(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		others := crowd(200)
		a.Publish(here(owner, time.Hour, others...))
		after(time.Minute) // earlier events are refused because their author is not listed
		for _, k := range others {
			a.Publish(elsewhere(k, time.Hour, owner))
		}
		after(5 * time.Minute)
		require.Zero(t, r.store.Len(), "what a free key has stored")
		require.Equal(t, nip34.HeldBounds().PerOwner, r.maintainers())
		require.GreaterOrEqual(t, r.crowded(), uint64(200-nip34.HeldBounds().PerOwner))
		require.Len(t, r.waits.AllAnnouncements(), 1)

		// They count for the owner who lists them, in addition to the owner's held events.
		for i := range 99 {
			answer, err := r.waits.Submit(t.Context(), eventtest.Of(owner.Hosted(at(0), fmt.Sprint("x", i), us)), graspsync.Source{})
			require.NoError(t, err)
			require.Equal(t, purgatory.Held, answer.Decision)
		}
		after(26 * time.Hour)
		require.Zero(t, r.maintainers(), "they go with what wants them")
		require.Zero(t, r.store.Len())
	})
}

// Announcements held with another one are stored with it, and so are those that they list, except
// those that are no longer listed.
func TestMaintainersGoWithWhatWantsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		people := crowd(4)
		nearest, next, dropped, far := people[0], people[1], people[2], people[3]
		a.Publish(here(owner, 4*time.Hour, nearest, dropped))
		answers := []*nostr.Event{
			elsewhere(nearest, time.Hour, owner, next), elsewhere(next, time.Hour, nearest), elsewhere(dropped, time.Hour, owner, far),
			elsewhere(far, time.Hour, dropped),
		}
		a.Publish(answers...)
		after(5 * time.Minute)
		require.Equal(t, 4, r.maintainers())
		require.Zero(t, r.store.Len())

		r.stop()
		r.start()
		after(time.Minute)
		require.Equal(t, 4, r.maintainers(), "as many as before the restart")

		listing := here(owner, time.Minute, nearest)
		a.Publish(listing)
		after(5 * time.Minute)
		require.Equal(t, 2, r.maintainers(), "neither whom nobody lists, nor whom they list")
		require.EqualValues(t, 2, r.waits.Status().Ended[purgatory.Unwanted])

		a.Publish(here(owner, 0, nearest, dropped))
		after(5 * time.Minute)
		require.Equal(t, 4, r.maintainers(), "they were judged again")
		a.Publish(owner.Announcement(at(-time.Second), "repo", []string{"wss://" + us, "wss://a.example"},
			[]string{owner.CloneURL("wss://"+us, "repo")}, nearest))
		after(5 * time.Minute)
		require.Equal(t, 2, r.maintainers())

		r.serve(owner)
		after(5 * time.Minute)
		require.Zero(t, r.maintainers())
		for i, ev := range answers {
			require.Equal(t, i < 2, r.has(ev), i)
		}
		require.Empty(t, r.git.Broken())
	})
}

// An announcement held with another one can be deleted, and goes when the other is deleted.
func TestMaintainersAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		listing, answer, other := here(owner, time.Hour, helper, stranger), elsewhere(helper, time.Hour, owner), elsewhere(stranger, time.Hour, owner)
		a.Publish(listing, answer, other)
		after(5 * time.Minute)
		require.Equal(t, 2, r.maintainers())
		remove := func(ev *nostr.Event) {
			v, err := r.manager.Judge(t.Context(), eventtest.Of(ev))
			require.NoError(t, err)
			require.Equal(t, graspsync.Accept, v.Decision)
			_, err = r.store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(ev)}})
			require.NoError(t, err)
			r.manager.NotifyStored(eventtest.Of(ev))
			r.waits.NotifyStored(eventtest.Of(ev))
			after(time.Minute)
		}
		remove(helper.Deletion(at(0), answer))
		require.Equal(t, 1, r.maintainers())
		remove(owner.Deletion(at(0), listing))
		require.Zero(t, r.maintainers())
		require.Empty(t, r.waits.Held(nostr.Filter{}))
		require.Equal(t, 2, r.store.Len(), "the deletions")
	})
}

func (r *rig) waitsFor(ev *nostr.Event) bool {
	id, err := graspsync.ParseEventID(ev.ID)
	require.NoError(r.t, err)
	return !r.waits.Event(id).IsZero()
}

// An announcement that its owner withdrew from us stays held as long as another announcement lists
// its author.
func TestWhatWasTakenFromUsIsWanted(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprint("listed first ", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				defer r.stop()
				a := r.net.Add("wss://a.example", relaytest.Behavior{})
				if first {
					a.Publish(here(owner, time.Hour, helper))
				}
				a.Publish(here(helper, 3*time.Hour))
				after(5 * time.Minute)
				left := elsewhere(helper, time.Hour, owner)
				a.Publish(left)
				after(5 * time.Minute)
				require.True(t, r.waitsFor(left))
				if !first {
					a.Publish(here(owner, time.Hour, helper))
				}
				after(3 * time.Hour)
				require.True(t, r.waitsFor(left))
				a.Publish(owner.State(at(time.Minute), "repo", map[string]string{"refs/heads/main": commit}, "main"))
				after(time.Minute) // its repository is created again
				r.serve(owner)
				after(5 * time.Minute)
				require.True(t, r.has(left))
			})
		})
	}
}

// After an owner withdrew a held repository, anybody could bring it back with the older
// announcement and its state.
func TestWhatWasTakenFromUsIsNotBroughtBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		old, left := here(helper, 3*time.Hour), elsewhere(helper, time.Hour)
		a.Publish(old)
		after(5 * time.Minute)
		require.True(t, r.waitsFor(old))
		a.Publish(left)
		after(2 * time.Hour)
		require.False(t, r.waitsFor(old))
		require.False(t, r.waitsFor(left))
		state := helper.State(at(2*time.Hour), "repo", map[string]string{"refs/heads/main": commit}, "main")
		for _, restarted := range []bool{false, true} {
			if restarted {
				r.stop()
				r.start()
				after(time.Minute)
			}
			for _, ev := range []*nostr.Event{old, state} {
				v, err := r.manager.Judge(t.Context(), eventtest.Of(ev))
				require.NoError(t, err)
				require.Contains(t, []graspsync.Decision{graspsync.Reject, graspsync.Depend}, v.Decision, v.Reason)
			}
			require.False(t, r.waitsFor(old))
		}
		back := here(helper, 0)
		a.Publish(back)
		after(5 * time.Minute)
		require.True(t, r.waitsFor(back), "who comes back does")
	})
}
