package purgatory_test

import (
	"context"
	"log/slog"
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

// served has a repository of alice's served with a branch.
func served(w *world) (announcement *nostrEvent) {
	a := announce(alice, now()-100)
	w.relay.put(a, says(alice, now()-100, "main", 1))
	w.git.Put(repoOf(alice), object(1), object(2))
	w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
	wait(time.Second)
	return a
}

// gone takes an event out of the relay.
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

// A repository whose announcement was deleted, or had gone in some other way, was served
// for ever, and took whatever anybody pushed.
func TestDepartedRepositories(t *testing.T) {
	for name, c := range map[string]struct {
		soon   bool
		leaves func(w *world, a *nostrEvent)
	}{
		"deleted by its address": {true, func(w *world, a *nostrEvent) {
			w.relay.gone(a)
			d := alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"a", "30617:" + repoOf(alice).String()})
			w.relay.put(d)
			w.p.NotifyStored(eventtest.Of(d))
		}},
		"deleted by its id": {true, func(w *world, a *nostrEvent) {
			w.relay.gone(a)
			d := alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", a.ID})
			w.relay.put(d)
			w.p.NotifyStored(eventtest.Of(d))
		}},
		"vanished": {true, func(w *world, a *nostrEvent) {
			w.relay.gone(a)
			w.p.NotifyStored(eventtest.Of(alice.Event(now(), 62, "", nostrTag{"relay", "ALL_RELAYS"})))
		}},
		"lists us no more": {true, func(w *world, a *nostrEvent) {
			w.relay.gone(a) // the relay has it, but it is none of those that are ours
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

// What stays announced, waits or is none of theirs stays.
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

// Announced again in time, a repository is as it was.
func TestDepartedAndAnnouncedAgain(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := served(w)
		w.relay.gone(a)
		w.p.NotifyStored(eventtest.Of(alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", a.ID})))
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

// Who pushes has the repository to the end of the push; then it goes.
func TestDepartsAfterThePush(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := served(w)
		_, unlock, err := w.git.Lock(context.Background(), repoOf(alice))
		require.NoError(t, err)
		w.relay.gone(a)
		w.p.NotifyStored(eventtest.Of(alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", a.ID})))
		wait(time.Minute)
		require.True(t, w.git.Has(repoOf(alice)))
		unlock()
		wait(5 * time.Minute)
		require.False(t, w.git.Has(repoOf(alice)))
	})
}

// An operator could not have a repository removed.
func TestRemoveRepository(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := served(w)
		w.relay.gone(a)
		require.NoError(t, w.p.RemoveRepository(t.Context(), repoOf(alice)))
		require.False(t, w.git.Has(repoOf(alice)))
		require.False(t, w.git.Kept(repoOf(alice)))
		require.NoError(t, w.p.RemoveRepository(t.Context(), repoOf(alice)), "there is none")
	})
}

// Refs that anybody may have made kept an announcement without data from expiring, for
// ever, and were tried to be removed every ten seconds.
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

// What can't be expired is tried again later and later.
func TestExpiryBacksOff(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		tries := 0
		w.git.FailWith(func(op string) error {
			if op == "remove" {
				tries++
				return errDisk
			}
			return nil
		})
		w.held(announce(alice, now()))
		wait(12 * time.Hour)
		require.Less(t, tries, 25)
		require.Greater(t, tries, 8)
		w.git.FailWith(nil)
		wait(time.Hour + time.Minute)
		require.False(t, w.git.Has(repoOf(alice)))
	})
}

// When the folder of repositories was lost events went on being served, clones were told that
// there is no such repository, and nobody noticed before the check, up to an hour later.
func TestLostRepositoriesAreNoticedAtTheStart(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		served(w)
		w.stop()
		require.NoError(t, w.git.Delete(t.Context(), repoOf(alice)))
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

// A lost repository was not noticed at the start if another owner's of the same name was there.
func TestALostRepositoryIsNoticedBesideAnotherOwners(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		served(w)
		w.relay.put(announce(bob, now()-100), says(bob, now()-100, "main", 1))
		w.git.Put(repoOf(bob), object(1))
		w.stop()
		require.NoError(t, w.git.Delete(t.Context(), repoOf(bob)))
		var said strings.Builder
		w.cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		w.start()
		wait(time.Second)
		require.True(t, w.git.Has(repoOf(bob)))
		require.Contains(t, said.String(), "missing on disk")
		require.Contains(t, said.String(), "count=1")
		w.stop()
		said.Reset()
		w.start()
		wait(time.Second)
		require.NotContains(t, said.String(), "missing on disk")
	})
}

// A look that had begun when the clock came to an announcement took its repository for nobody's,
// and out of service, before it was settled whether there was something in it.
func TestLookWhileAnAnnouncementIsAboutToExpire(t *testing.T) {
	run(t, purgatory.Config{Times: purgatory.Times{Hold: 2 * time.Minute}}.With(purgatory.Fixed{MaxHold: time.Hour}), func(t *testing.T, w *world) {
		a := announce(alice, now())
		w.held(a)
		wait(time.Minute + 55*time.Second)
		w.relay.put(says(alice, now()-100, "main", 1))
		w.git.Put(repoOf(alice), object(1))
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		w.git.FailWith(func(op string) error {
			switch op {
			case "lock": // a slow disk: of the look below first, then of the clock
				time.Sleep(8 * time.Second)
			case "depart", "remove":
				t.Error(op)
			}
			return nil
		})
		w.held(says(bob, now(), "main", 2))
		wait(10 * time.Minute)
		require.True(t, w.relay.has(a))
		w.git.FailWith(nil)
	})
}

// A state that its author had deleted went on deciding about refs for up to an hour: also in the
// repositories of others, whose own states were the newest again.
func TestADeletedStateDecidesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		hosted bool // the author's own repository is here as well
		leaves func(w *world, st *nostrEvent)
	}{
		"by its address": {false, func(w *world, st *nostrEvent) {
			w.p.NotifyStored(eventtest.Of(carol.Deletion(now(), st)))
		}},
		"by its id": {true, func(w *world, st *nostrEvent) {
			w.p.NotifyStored(eventtest.Of(carol.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", st.ID})))
		}},
		"by who removed it": {false, func(w *world, st *nostrEvent) { w.p.NotifySuperseded(eventtest.Of(st)) }},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				// carol has a say with alice by way of bob
				listing := func(k *relaytest.Key, others ...*relaytest.Key) *nostrEvent {
					tag := nostrTag{"maintainers"}
					for _, o := range others {
						tag = append(tag, o.Hex())
					}
					return k.Event(now()-500, graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, tag)
				}
				w.relay.put(listing(alice, bob), listing(bob, alice, carol))
				if hers := listing(carol, bob); c.hosted {
					w.relay.put(hers)
				} else {
					w.relay.relatives = []*nostrEvent{hers}
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

				w.relay.gone(st)
				c.leaves(w, st)
				wait(5 * time.Second)
				for _, k := range []*relaytest.Key{alice, bob} {
					require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, w.git.RefsOf(repoOf(k)))
				}
			})
		})
	}
}

// A version that a newer one takes the place of is removed as what is deleted: that costs no look.
func TestAReplacedStateCostsNoLook(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		served(w)
		old, locks := says(alice, now()-200, "main", 2), 0
		w.git.FailWith(func(op string) error {
			if op == "lock" {
				locks++
			}
			return nil
		})
		w.p.NotifySuperseded(eventtest.Of(old))
		wait(5 * time.Second)
		require.Zero(t, locks)
		w.git.FailWith(nil)
	})
}
