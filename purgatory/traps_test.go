package purgatory_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func serving(objects ...int) (s fetchtest.Server) {
	for _, n := range objects {
		s.Objects = append(s.Objects, object(n))
	}
	return s
}

// A repository is not removed if a push has brought data, it is locked, or a fetch is under way.
func TestTrapP2_InUse(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.held(announce(alice, now(), "a.example/r.git"))
		wait(time.Minute)
		_, unlock, err := w.git.Lock(t.Context(), repoOf(alice))
		require.NoError(t, err)
		wait(40 * time.Minute)
		require.True(t, w.git.Has(repoOf(alice)), "somebody is pushing")
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, object(1))
		unlock()
		wait(6 * time.Minute) // a failed release is repeated within 5 min; this push is not reported
		require.True(t, w.git.Has(repoOf(alice)), "it has refs")
		require.Len(t, w.relay.events, 1, "and so it is served")
	})
	run(t, purgatory.Config{Times: purgatory.Times{Hold: time.Hour}}.With(purgatory.Fixed{MaxHold: time.Hour}), func(t *testing.T, w *world) {
		s := serving(1)
		s.Delay = 8 * time.Minute
		w.git.Serve(clone("a.example/r.git"), s)
		a := announce(alice, now(), "a.example/r.git")
		w.held(a)
		wait(55 * time.Minute)
		state := says(alice, now(), "main", 1)
		w.held(state) // a sign of life, but the maximum hold ends after an hour
		wait(6 * time.Minute)
		require.True(t, w.git.Has(repoOf(alice)), "something is being fetched into it")
		wait(5 * time.Minute)
		require.True(t, w.relay.has(a))
		require.True(t, w.relay.has(state))
	})
}

// An expired event is not held again by sync. A copy does not restart the hold. A state of a key
// that is no maintainer is no sign of life.
func TestTrapP3_NoLoop(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a, s := announce(alice, now()), says(alice, now(), "main", 1)
		w.held(a)
		w.held(s)
		wait(20 * time.Minute)
		w.held(s)
		w.held(a)
		w.held(announce(carol, now()))
		w.held(says(carol, now(), "main", 2))
		wait(11 * time.Minute)
		require.Equal(t, purgatory.Refused, w.submit(s, false))
		require.False(t, w.git.Has(repoOf(alice)), "expired softly")
		require.True(t, w.git.Has(repoOf(carol)))
		w.held(says(carol, now()+1, "main", 2))
		wait(time.Minute)
		require.False(t, w.git.Has(repoOf(alice)), "not revived by a stranger")
		wait(25 * time.Hour)
		require.Equal(t, purgatory.Refused, w.submit(a, false))
		require.Empty(t, w.p.Held(nostrFilter{}))
		w.stop()
		w.start()
		require.Equal(t, purgatory.Refused, w.submit(a, false), "nor after a restart")
		wait(8 * 24 * time.Hour)
		require.Equal(t, purgatory.Held, w.submit(a, false), "not for ever")
	})
}

// A newer version replaces a held one for the rest of its time. An older one does not, whichever is
// written first.
func TestTrapP4_Replacements(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		old, young := announce(alice, now()-10, "a.example/r.git"), announce(alice, now(), "b.example/r.git")
		w.held(young)
		require.Equal(t, purgatory.Refused, w.submit(old, false))
		require.Empty(t, w.relay.events, "nothing is served at once")
		w.held(announce(alice, now()+1, "b.example/r.git"))
		require.Len(t, w.p.Held(nostrFilter{}), 1)
		require.Len(t, w.p.Announcements("r"), 1)
	})
}

// A pull request update is held, fetched for, released, staged and expired like a pull request.
func TestTrapP8_Updates(t *testing.T) {
	for _, kind := range []int{graspsync.KindPullRequest, graspsync.KindPullRequestUpdate} {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			w.relay.put(announce(alice, now()-500, "a.example/r.git"))
			w.git.Serve(clone("a.example/r.git"), serving(5))
			p := pull(bob, repoOf(alice), 5, kind)
			w.held(p)
			wait(time.Second)
			require.True(t, w.relay.has(p))
			id, _ := graspsync.ParseEventID(p.ID)
			require.Equal(t, object(5), w.git.RefsOf(repoOf(alice))[nip34.EventRef(id)])
			never := pull(bob, repoOf(alice), 6, kind)
			w.held(never)
			id, _ = graspsync.ParseEventID(never.ID)
			require.Equal(t, object(6), w.p.PullRequest(id).Tip)
			wait(31 * time.Minute)
			require.Equal(t, purgatory.Refused, w.submit(never, false))
			require.Nil(t, w.p.PullRequest(id))
		})
	}
}

// One author cannot fill purgatory.
func TestTrapP10_Quotas(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxEntries: 2}}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500))
		w.held(says(alice, now(), "main", 99))
		w.held(says(alice, now()+1, "main", 99))
		w.held(says(bob, now(), "main", 99))
		require.Equal(t, uint64(1), w.p.Status().Ended[purgatory.Displaced], "of who has two the older")
		require.Equal(t, purgatory.Full, w.submit(says(carol, now(), "main", 99), false))
		require.Equal(t, uint64(1), w.p.Status().Dropped["full"])
	})
}

// A stranger who announces the victim's identifier adds nothing to the victim's repository, and
// causes no more requests to the victim's servers.
func TestTrapG2_OwnerAndIdentifier(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		w.git.Put(repoOf(alice))
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{})
		w.git.Serve(clone("evil.example/r.git"), serving(66, 67))
		w.held(says(alice, now(), "main", 1))
		wait(10 * time.Minute)
		asked := func() (n int) {
			for _, c := range w.git.Calls() {
				if strings.HasPrefix(c.URL.String(), "https://a.example") {
					n++
				}
			}
			return n
		}
		before := asked()
		w.held(announce(carol, now(), "evil.example/r.git"))
		for i := range 20 {
			w.held(says(carol, now(), "main", 66+i%2))
			wait(5 * time.Second)
		}
		require.LessOrEqual(t, asked()-before, 1)
		require.Equal(t, object(67), w.git.RefsOf(repoOf(carol))[branch("main")])
		require.Empty(t, w.git.RefsOf(repoOf(alice)))
		require.Empty(t, w.git.Objects(repoOf(alice)))
	})
}

// Submit does not wait for git. If every git operation hangs, events of a relay are still held.
func TestTrapS2_SubmitDoesNotWait(t *testing.T) {
	run(t, purgatory.Config{}.With(purgatory.Fixed{Timeout: time.Minute}), func(t *testing.T, w *world) {
		stuck := make(chan struct{})
		w.git.FailWith(func(string) error { <-stuck; return nil })
		began := time.Now()
		w.held(announce(alice, now(), "a.example/r.git"))
		for i := range 50 {
			w.held(says(alice, now()-nostrTime(i), "main", i))
		}
		require.Equal(t, began, time.Now())
		w.git.FailWith(nil)
		close(stuck)
		synctest.Wait()
	})
}

// P12: an event moves refs only where its author is a maintainer at that time, directly or through
// another maintainer.
func TestPromiseP12_OnlyWhereAuthorised(t *testing.T) {
	run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
		at := now() - 500
		d := nostrTag{"d", "r"}
		w.relay.put(
			listing(alice, at, bob),
			listing(bob, at, carol),
			dave.Event(at, graspsync.KindAnnouncement, "", d),
		)
		for _, k := range []*relaytest.Key{alice, bob, dave} {
			w.git.Put(repoOf(k))
		}
		w.git.Put(repoOf(bob), object(1))
		s := says(carol, now(), "main", 1)
		w.held(s)
		wait(time.Second)
		require.True(t, w.relay.has(s))
		require.Equal(t, object(1), w.git.RefsOf(repoOf(bob))[branch("main")])
		require.Equal(t, object(1), w.git.RefsOf(repoOf(alice))[branch("main")], "data that came once serves all that wait")
		require.Empty(t, w.git.RefsOf(repoOf(dave)))
		require.Empty(t, w.git.Objects(repoOf(dave)))
		// Carol is no longer a maintainer, and her next state moves no refs.
		w.relay.put(bob.Event(at+1, graspsync.KindAnnouncement, "", d))
		w.held(says(carol, now()+1, "main", 2))
		w.git.Put(repoOf(bob), object(2))
		w.p.Pushed(t.Context(), repoOf(bob), nil)
		wait(time.Second)
		require.Equal(t, object(1), w.git.RefsOf(repoOf(bob))[branch("main")])
	})
}

// P13: only Save of the relay stores events, and a refused event is not stored.
func TestPromiseP13_OneWayIn(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		w.git.Serve(clone("a.example/r.git"), serving(1))
		w.relay.mu.Lock()
		w.relay.fail = errors.New("not wanted")
		w.relay.mu.Unlock()
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(time.Hour)
		require.False(t, w.relay.has(s))
		require.Zero(t, w.p.Status().Ended[purgatory.Released])
	})
}

// P16: a server without the objects is asked ever more rarely while the event is held.
func TestPromiseP16_NotServedIsRemembered(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{})
		w.held(says(alice, now(), "main", 1))
		wait(30 * time.Minute)
		require.LessOrEqual(t, len(w.git.Calls()), 10)
		require.Positive(t, w.p.Status().Dropped["server_lacks"])
		var most time.Duration
		calls := w.git.Calls()
		for i := range calls[1:] {
			most = max(most, calls[i+1].At.Sub(calls[i].At))
		}
		require.Greater(t, most, 5*time.Minute)
	})
}

// P17: a server that exceeds a limit is not asked again until the next day, and does not block
// others. The bytes of a day are bounded. Servers that only pull requests name cannot use up the
// bytes of maintainers' servers.
func TestPromiseP17_BytesOfADay(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxRepoDay: 1000, MaxHostDay: 10_000}}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "endless.example/r.git", "good.example/r.git"))
		w.git.Serve(clone("endless.example/r.git"), fetchtest.Server{Err: fmt.Errorf("%w: bytes", purgatory.ErrLimit), Bytes: 300})
		w.git.Serve(clone("good.example/r.git"), fetchtest.Server{})
		for i := range 4 {
			u := fmt.Sprintf("junk%d.example/r.git", i)
			w.git.Serve(clone(u), fetchtest.Server{Err: errors.New("junk"), Bytes: 400})
			w.held(bob.Event(now()+nostrTime(i), graspsync.KindPullRequest, "", nostrTag{"a", repoOf(alice).String()},
				nostrTag{"c", object(9).String()}, nostrTag{"clone", "https://" + u}))
		}
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(15 * time.Minute)
		count := make(map[string]int)
		for _, c := range w.git.Calls() {
			count[c.URL.HostPort().Host]++
		}
		require.Equal(t, 1, count["endless.example"])
		require.LessOrEqual(t, count["junk0.example"]+count["junk1.example"]+count["junk2.example"]+count["junk3.example"], 2)
		require.False(t, w.relay.has(s))
		// The maintainers' good server is still asked, after strangers sent their maximum.
		w.git.Serve(clone("good.example/r.git"), serving(1))
		wait(14 * time.Minute)
		require.True(t, w.relay.has(s) || w.p.Status().Dropped["repo_day"] > 0)
	})
}

// P32: objects of a server do not suffice if an object that they need is missing.
func TestPromiseP32_Closure(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Needs(object(1), object(2), object(3))
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		w.git.Serve(clone("a.example/r.git"), serving(1, 2))
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(5 * time.Minute)
		require.False(t, w.relay.has(s))
		require.Empty(t, w.git.RefsOf(repoOf(alice)))
		w.git.Serve(clone("a.example/r.git"), serving(1, 2, 3))
		wait(15 * time.Minute)
		require.True(t, w.relay.has(s))
	})
}

// P34: refs are deleted only by a state, and the newest one decides.
func TestPromiseP34_DeletionsOfRefs(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500), says(alice, now()-400, "main", 1, "dev", 2))
		w.git.Put(repoOf(alice), object(1), object(2))
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1), branch("dev"): object(2)})
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(time.Second)
		require.True(t, w.relay.has(s))
		require.Equal(t, map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, w.git.RefsOf(repoOf(alice)))
		empty := says(alice, now()+1)
		w.held(empty)
		wait(time.Second)
		require.True(t, w.relay.has(empty), "the repository is served already")
		require.Empty(t, w.git.RefsOf(repoOf(alice)))
	})
}

// P35: an empty repository is recreated in the object format of its first state, and never later.
func TestPromiseP35_ObjectFormat(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		long, err := nip34.ParseObjectID(strings.Repeat("ab", 32))
		require.NoError(t, err)
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{long}})
		a := announce(alice, now(), "a.example/r.git")
		w.held(a)
		wait(time.Second)
		s := alice.Event(now(), graspsync.KindState, "", nostrTag{"d", "r"}, nostrTag{"refs/heads/main", long.String()})
		w.held(s)
		wait(time.Second)
		require.True(t, w.relay.has(s))
		require.Equal(t, long, w.git.RefsOf(repoOf(alice))[branch("main")])
		w.held(says(alice, now()+1, "main", 1))
		wait(time.Minute)
		require.Equal(t, long, w.git.RefsOf(repoOf(alice))[branch("main")])
		require.False(t, slices.ContainsFunc(w.git.Calls(), func(c fetchtest.Call) bool { return slices.Contains(c.Want, object(1)) }))
	})
}
