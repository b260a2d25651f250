package purgatory_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// served makes alice's repository served, with a branch.
func served(w *world) (announcement *nostrEvent) {
	a := announce(alice, now()-100)
	w.relay.put(a, says(alice, now()-100, "main", 1))
	w.git.Put(repoOf(alice), object(1), object(2))
	w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
	wait(time.Second)
	return a
}

// gone removes an event from the relay.
func (r *relay) gone(ev *nostrEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.events[:0]
	for _, o := range r.events {
		if o.ID != ev.ID {
			kept = append(kept, o)
		}
	}
	r.events = kept
}

// removed is gone, and reports it.
func (w *world) removed(ev *nostrEvent) {
	w.relay.gone(ev)
	w.p.NotifySuperseded(eventtest.Of(ev))
}

// A repository whose announcement was deleted or removed in another way leaves service. Before, it
// was served forever and accepted pushes.
func TestDepartedRepositories(t *testing.T) {
	for name, c := range map[string]struct {
		soon   bool
		leaves func(w *world, a *nostrEvent)
	}{
		"deleted": {true, (*world).removed},
		"lists us no more": {true, func(w *world, a *nostrEvent) {
			w.relay.gone(a) // the relay has it, but it does not list this service
			w.p.NotifyStored(eventtest.Of(announce(alice, now())))
		}},
		"lost": {false, func(w *world, a *nostrEvent) { w.relay.gone(a) }},
		"expired": {false, func(w *world, a *nostrEvent) {
			w.relay.gone(a)
			w.relay.put(alice.Event(now(), graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, nostrTag{"expiration", "1"}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				a := served(w)
				c.leaves(w, a)
				if c.soon {
					wait(time.Second)
				} else {
					wait(2 * time.Hour)
				}
				require.False(t, w.git.Has(repoOf(alice)), "it is out of service")
				require.True(t, w.git.Kept(repoOf(alice)))
				w.stop()
				w.start()
				wait(6*24*time.Hour + 20*time.Hour)
				require.True(t, w.git.Kept(repoOf(alice)), "though there was a restart")
				wait(8 * time.Hour)
				require.False(t, w.git.Kept(repoOf(alice)))
			})
		})
	}
}

// Repositories with a stored or held announcement, and of other owners, stay.
func TestOthersDoNotDepart(t *testing.T) {
	run(t, purgatory.Config{Times: purgatory.Times{Hold: 10 * time.Hour}}.With(purgatory.Fixed{MaxHold: 24 * time.Hour}), func(t *testing.T, w *world) {
		served(w)
		w.relay.put(announce(bob, now()-100))
		w.git.Put(repoOf(bob), object(1))
		w.git.Push(repoOf(bob), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		w.held(announce(carol, now()))
		wait(time.Second)
		w.p.NotifyStored(eventtest.Of(alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", idOf(says(alice, now()-100, "main", 1)).String()})))
		w.p.NotifyStored(eventtest.Of(bob.Event(now(), graspsync.KindDeletion, "", nostrTag{"a", "30617:" + repoOf(alice).String()})))
		wait(5 * time.Hour)
		for _, ref := range []graspsync.RepoRef{repoOf(alice), repoOf(bob), repoOf(carol)} {
			require.True(t, w.git.Has(ref))
		}
	})
}

// A repository that is announced again in time is restored.
func TestDepartedAndAnnouncedAgain(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := served(w)
		w.removed(a)
		wait(24 * time.Hour)
		require.False(t, w.git.Has(repoOf(alice)))
		again := announce(alice, now())
		require.Equal(t, purgatory.Held, w.submit(again, true))
		wait(time.Second)
		require.True(t, w.relay.has(again))
		require.Equal(t, object(1), w.git.RefsOf(repoOf(alice))[branch("main")])
		require.False(t, w.git.Kept(repoOf(alice)))
		wait(30 * 24 * time.Hour)
		require.True(t, w.git.Has(repoOf(alice)))
	})
}

// A repository is retired after a running push has ended.
func TestDepartsAfterThePush(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := served(w)
		_, unlock, err := w.git.Lock(context.Background(), repoOf(alice))
		require.NoError(t, err)
		w.removed(a)
		wait(time.Minute)
		require.True(t, w.git.Has(repoOf(alice)))
		unlock()
		wait(5 * time.Minute)
		require.False(t, w.git.Has(repoOf(alice)))
	})
}

// Refs of pull requests do not keep an announcement without data from expiring. Before, it never
// expired, and its removal was retried every ten seconds.
func TestExpiresDespiteRefsOfPullRequests(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.held(announce(alice, now()))
		wait(time.Second)
		p := pull(carol, repoOf(alice), 5, graspsync.KindPullRequest)
		w.relay.put(p)
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{refOf(p): object(5)}, object(5))
		wait(30 * time.Minute)
		require.False(t, w.git.Has(repoOf(alice)))
		require.True(t, w.git.Kept(repoOf(alice)))
		require.Empty(t, w.p.Announcements("r"))
	})
}

// If the folder of repositories is lost, they are recreated at the start. Before, events were
// served without repositories until the hourly check.
func TestLostRepositoriesAreNoticedAtTheStart(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		served(w)
		w.stop()
		_, err := w.git.Retire(t.Context(), repoOf(alice), 0)
		require.NoError(t, err)
		var said strings.Builder
		w.cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		w.start()
		wait(time.Second)
		require.True(t, w.git.Has(repoOf(alice)))
		require.Contains(t, said.String(), "missing on disk")
		w.stop()
		said.Reset()
		w.start()
		wait(time.Second)
		require.NotContains(t, said.String(), "missing on disk")
	})
}

// A state that its author has deleted stops deciding about refs, also in repositories of other
// owners. Before, it did so only after up to an hour.
func TestADeletedStateDecidesNothing(t *testing.T) {
	for _, hosted := range []bool{false, true} { // whether this service hosts the author's own repository
		t.Run(strconv.FormatBool(hosted), func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				// Carol is a maintainer for alice through bob.
				listing := func(k *relaytest.Key, others ...*relaytest.Key) *nostrEvent {
					tag := nostrTag{"maintainers"}
					for _, o := range others {
						tag = append(tag, o.Hex())
					}
					return k.Event(now()-500, graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, tag)
				}
				w.relay.put(listing(alice, bob), listing(bob, alice, carol))
				if hers := listing(carol, bob); hosted {
					w.relay.put(hers)
				} else {
					w.relay.notListing = []*nostrEvent{hers}
				}
				w.relay.put(says(alice, now()-100, "main", 1))
				for _, k := range []*relaytest.Key{alice, bob} {
					w.git.Put(repoOf(k), object(1), object(2))
					w.git.Push(repoOf(k), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
				}
				st := says(carol, now()-50, "main", 2, "evil", 2)
				w.held(st)
				wait(5 * time.Second)
				require.True(t, w.relay.has(st))
				require.Equal(t, object(2), w.git.RefsOf(repoOf(alice))[branch("evil")])

				w.removed(st)
				wait(5 * time.Second)
				for _, k := range []*relaytest.Key{alice, bob} {
					require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, w.git.RefsOf(repoOf(k)))
				}
			})
		})
	}
}
