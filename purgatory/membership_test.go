package purgatory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A maintainer's state counts while the listing is mutual.
func TestWhatIsAnsweredCounts(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		listing := func(k, other *relaytest.Key, at nostr.Timestamp) *nostr.Event {
			ev := announce(k, at, "good.example/r.git")
			ev.Tags = append(ev.Tags, nostr.Tag{"maintainers", other.Hex()})
			k.Sign(ev)
			return ev
		}
		arrives := func(ev *nostr.Event) {
			w.relay.put(ev)
			w.p.NotifyStored(eventtest.Of(ev))
			wait(5 * time.Second)
		}
		decides := func(want *nostr.Event, n int) {
			t.Helper()
			s, err := w.p.AuthorizedState(t.Context(), repoOf(alice))
			require.NoError(t, err)
			require.Equal(t, want.ID, s.ID.String())
			require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(n)}, w.git.RefsOf(repoOf(alice)))
		}
		w.git.Serve(clone("good.example/r.git"), serving(1, 2))
		began := now()
		alices, bobs := says(alice, began-10, "main", 1), says(bob, began, "main", 2)
		w.relay.put(listing(alice, bob, began-500), announce(bob, began-500, "good.example/r.git"))
		w.held(alices)
		w.held(bobs)
		wait(5 * time.Minute)
		require.True(t, w.relay.has(alices))
		require.True(t, w.relay.has(bobs), "it is what bob says of his own repository")
		decides(alices, 1)

		arrives(listing(bob, alice, began-400))
		decides(bobs, 2)
		arrives(announce(bob, began-300))
		decides(alices, 1)
		back := listing(bob, alice, began-200)
		arrives(back)
		decides(bobs, 2)
		w.relay.mu.Lock()
		w.relay.events = slices.DeleteFunc(w.relay.events, func(ev *nostr.Event) bool {
			return ev.PubKey == bob.Hex() && ev.Kind == back.Kind
		})
		w.relay.mu.Unlock()
		w.p.NotifySuperseded(eventtest.Of(back))
		wait(5 * time.Second)
		decides(alices, 1)
	})
}

// The git data of a maintainer's state is fetched from the clone URLs of the maintainer's
// announcement, even if the maintainer's repository is not hosted.
func TestDataOfMaintainersElsewhere(t *testing.T) {
	for _, answered := range []bool{true, false} {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			hers, his := listing(alice, now()-500, bob), announce(bob, now()-500, "bobs.example/r.git")
			if answered {
				his.Tags = append(his.Tags, nostr.Tag{"maintainers", alice.Hex()})
				bob.Sign(his)
			}
			w.relay.put(hers)
			w.relay.notListing = []*nostr.Event{his}
			w.git.Serve(clone("bobs.example/r.git"), serving(2))
			s := says(bob, now(), "main", 2)
			w.held(s)
			wait(5 * time.Minute)
			require.Equal(t, answered, w.relay.has(s))
			require.Equal(t, answered, len(w.git.Calls()) > 0, "a stranger's server is left alone")
		})
	}
}

// Free keys with held announcements do not displace the stored announcement of a maintainer.
// Before, older states decided again.
func TestACrowdThatWaitsHasNobodyPassedOver(t *testing.T) {
	racetest.Amounts(t)
	for _, served := range []bool{true, false} {
		t.Run(fmt.Sprint("served ", served), func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				hers, list := announce(alice, now()-500, "good.example/r.git"), nostr.Tag{"maintainers"}
				var last *relaytest.Key
				for i := range 8 {
					last = relaytest.NewCheapKey(fmt.Sprint("member", i))
					list = append(list, last.Hex())
					his := announce(last, now()-500)
					his.Tags = append(his.Tags, nostr.Tag{"maintainers", alice.Hex()})
					last.Sign(his)
					w.relay.notListing = append(w.relay.notListing, his)
				}
				hers.Tags = append(hers.Tags, list)
				alice.Sign(hers)
				main := func() nip34.ObjectID { return w.git.RefsOf(repoOf(alice))[branch("main")] }
				push := func() {
					w.git.Put(repoOf(alice), object(1), object(2))
					w.p.Pushed(t.Context(), repoOf(alice), nil)
					wait(5 * time.Minute)
				}
				first, second := says(alice, now()-400, "main", 1), says(last, now()-300, "main", 2)
				if served {
					w.relay.put(hers, first, second)
					push()
					require.Equal(t, object(2), main())
				} else {
					w.held(hers)
					w.held(first)
				}
				for i := range 260 {
					k := relaytest.NewCheapKey(fmt.Sprint("free", i))
					ev, tag := announce(k, now()), nostr.Tag{"maintainers"}
					for j := range 4 {
						tag = append(tag, relaytest.NewCheapKey(fmt.Sprint("unheard of", i, "-", j)).Hex())
					}
					ev.Tags = append(ev.Tags, tag)
					k.Sign(ev)
					w.held(ev)
				}
				wait(time.Minute)
				if !served {
					w.held(second)
				}
				push()
				require.Equal(t, object(2), main())
				s, err := w.p.AuthorizedState(t.Context(), repoOf(alice))
				require.NoError(t, err)
				require.Equal(t, last.PubKey(), s.Ref.Owner)
				require.True(t, w.relay.has(second))
			})
		})
	}
}

// elsewhere is a relay on which a tag tells whether a repository is hosted.
type elsewhere struct{ *relay }

func (elsewhere) Lists(a *nip34.Announcement) bool { return a.Event.Tags.Find("elsewhere") == nil }

// A crash after an owner's announcement removed this service, and before the release, does not keep
// the repository in service.
func TestWhatWasTakenFromUsGoesAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		w.host = elsewhere{w.relay}
		w.start()
		inService(w, 1) // else the only repository waits for the operator
		ours := announce(alice, now()-10)
		require.Equal(t, purgatory.Held, w.submit(ours, true))
		require.True(t, w.git.Has(repoOf(alice)))
		w.stop()

		taken := announce(alice, now())
		taken.Tags = append(taken.Tags, nostr.Tag{"elsewhere"})
		alice.Sign(taken)
		data, err := json.Marshal(map[string]any{
			"class": 5, "event": taken, "replaces": true, "seen": time.Now(), "deadline": time.Now().Add(time.Hour),
		})
		require.NoError(t, err)
		err = w.state.Put(t.Context(), state.Record{Key: "purgatory/entry/" + taken.ID, Value: data})
		require.NoError(t, err)
		require.NoError(t, w.state.Delete(t.Context(), "purgatory/entry/"+ours.ID))
		w.start()
		wait(time.Minute)
		require.Equal(t, 1, w.p.Status().MaintainerAnnouncements)
		require.False(t, w.git.Has(repoOf(alice)))
		w.stop()
	})
}
