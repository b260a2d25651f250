package purgatory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// The repository of a held announcement is removed when the announcement is deleted or its NIP-40
// expiration passes. No state is served for it, even if the deletion was not reported.
func TestDeletedAnnouncement(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := announce(alice, now())
		require.Equal(t, purgatory.Held, w.submit(a, true))
		require.True(t, w.git.Has(repoOf(alice)), "at once: a push is next")
		d := alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", a.ID})
		w.relay.put(d)
		w.p.NotifyStored(eventtest.Of(d))
		wait(time.Second)
		require.Empty(t, w.p.Held(nostrFilter{}))
		require.False(t, w.git.Has(repoOf(alice)))
		w.held(bob.Event(now(), graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, nostrTag{"expiration", fmt.Sprint(now() + 60)}))
		wait(2 * time.Minute)
		w.held(says(bob, now(), "main", 1))
		wait(time.Second)
		require.Empty(t, w.p.Announcements("r"))
		c, s := announce(carol, now()), says(carol, now(), "main", 1)
		w.held(c)
		wait(time.Second)
		w.git.Put(repoOf(carol), object(1))
		w.relay.put(carol.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", c.ID}))
		w.held(s)
		wait(time.Second)
		require.False(t, w.relay.has(s))
		require.False(t, w.git.Has(repoOf(carol)))
	})
}

// If another version is served, deleting a version does not remove its repository, even if
// repositories of other owners leave at the same time.
func TestDeletedVersionOfWhatIsServed(t *testing.T) {
	for _, others := range []bool{false, true} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				newer, also := announce(alice, now()), announce(bob, now())
				w.held(newer)
				if others {
					w.held(also)
				}
				wait(time.Second)
				w.relay.put(announce(alice, now()-100)) // from elsewhere, in the same moment
				d := alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", newer.ID})
				theirs := bob.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", also.ID})
				w.relay.put(d, theirs)
				removed, want := 0, 0
				if others {
					want = 1
				}
				w.git.FailWith(func(op string) error {
					if op == "depart" || op == "remove" {
						removed++
					}
					return nil
				})
				w.p.NotifyStored(eventtest.Of(d))
				w.p.NotifyStored(eventtest.Of(theirs))
				wait(time.Second)
				require.Empty(t, w.p.Held(nostrFilter{}))
				require.True(t, w.git.Has(repoOf(alice)))
				require.Equal(t, want, removed, "alice's repository is not removed for a moment")
				require.False(t, w.git.Has(repoOf(bob)))
			})
		})
	}
}

// A held announcement of a listed maintainer is not released if it was deleted, even if the
// deletion was not reported.
func TestDeletedMaintainerIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		w.host = onlyHers{w.relay}
		w.start()
		hers := listing(alice, now()-10, bob)
		w.held(hers)
		wait(time.Second)
		his := announce(bob, now()-9)
		require.Equal(t, purgatory.Held, w.submit(his, true))
		require.Equal(t, 1, w.p.Status().MaintainerAnnouncements)
		wait(10 * time.Second)
		w.relay.put(bob.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", his.ID}))
		w.held(says(alice, now(), "main", 2))
		w.git.Put(repoOf(alice), object(2))
		w.p.Pushed(t.Context(), repoOf(alice), nil)
		wait(20 * time.Second)
		require.True(t, w.relay.has(hers))
		require.False(t, w.relay.has(his))
		w.stop()
	})
}

// onlyHers is a relay that does not host bob's repositories.
type onlyHers struct{ *relay }

func (r onlyHers) Lists(a *nip34.Announcement) bool { return a.Ref.Owner.String() != bob.Hex() }

// The ref of a stored pull request is removed when the event is deleted, unless it is stored again.
// Before, the ref stayed for up to two hours.
func TestDeletedPullRequestLeavesNoRef(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.serveAlice()
		var evs []*nostrEvent
		for i := range 3 {
			evs = append(evs, proposes(carol, now()-10, 2+i, ""))
		}
		w.stored(evs...)
		wait(time.Second)
		w.relay.remove(evs[0].ID)
		w.relay.remove(evs[1].ID)
		w.relay.put(evs[1])
		w.p.NotifySuperseded(eventtest.Of(evs[1]))
		w.p.NotifySuperseded(eventtest.Of(evs[0]))
		wait(time.Second)
		require.False(t, w.hasRef(evs[0]))
		require.True(t, w.hasRef(evs[1]))
		require.True(t, w.hasRef(evs[2]))
	})
}

// A relay library may call its hooks with an event that could not be parsed.
func TestZeroEventsAreIgnored(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.p.NotifyStored(graspsync.Event{})
		w.p.NotifySuperseded(graspsync.Event{})
		_, err := w.p.Submit(t.Context(), graspsync.Event{}, graspsync.Source{})
		require.ErrorIs(t, err, graspsync.ErrEvent)
	})
}
