package purgatory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func (w *world) pullRefs(ref graspsync.RepoRef) (n int) {
	for name := range w.git.RefsOf(ref) {
		if strings.HasPrefix(name.String(), "refs/nostr/") {
			n++
		}
	}
	return n
}

func (w *world) hasRef(ev *nostrEvent) bool {
	_, has := w.git.RefsOf(repoOf(alice))[refOf(ev)]
	return has
}

// proposes returns a pull request to alice's repository.
func proposes(k *relaytest.Key, at nostrTime, tip int, text string) *nostrEvent {
	return k.Event(at, graspsync.KindPullRequest, text, nostrTag{"a", repoOf(alice).String()}, nostrTag{"c", object(tip).String()})
}

// serveAlice makes alice's repository served, with a branch and more objects.
func (w *world) serveAlice() {
	w.relay.put(announce(alice, now()-100), says(alice, now()-100, "main", 1))
	w.git.Put(repoOf(alice), object(1), object(2), object(3), object(4), object(5), object(6), object(7), object(8), object(9))
	w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
}

// stored submits pull requests, and checks that they are served with their refs.
func (w *world) stored(evs ...*nostrEvent) {
	w.relay.put(evs...)
	refs := make(map[nip34.RefName]nip34.ObjectID)
	for _, ev := range evs {
		pr, err := nip34.ParsePullRequest(eventtest.Of(ev))
		require.NoError(w.t, err)
		refs[refOf(ev)] = pr.Tip
	}
	w.git.Push(repoOf(alice), refs)
}

// pushFor pushes the ref of a held pull request, as git would do it.
func (w *world) pushFor(ev *nostrEvent, bytes int64) (reason string) {
	pr, err := nip34.ParsePullRequest(eventtest.Of(ev))
	require.NoError(w.t, err)
	dir, unlock, err := w.git.Lock(w.t.Context(), repoOf(alice))
	require.NoError(w.t, err)
	defer unlock()
	refused, err := w.p.AdmitPullRefs(w.t.Context(), repoOf(alice), dir, []*nip34.PullRequest{pr}, bytes)
	require.NoError(w.t, err)
	if reason = refused[pr.ID]; reason == "" {
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{refOf(ev): pr.Tip}, pr.Tip)
	}
	return reason
}

// An author has at most 100 refs. Merged ones do not count. Before, one key could create any number
// of refs for existing commits.
func TestAnAuthorHasAHundredRefs(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.serveAlice()
		many := func(by *relaytest.Key, n int) (evs []*nostrEvent) {
			for i := range n {
				p := proposes(by, now()-nostrTime(n)+nostrTime(i), 2, fmt.Sprint(i))
				evs = append(evs, p)
				w.held(p)
				if i%10 == 0 {
					wait(100 * time.Millisecond)
				}
			}
			wait(time.Second)
			return evs
		}
		evs := many(carol, 300)
		require.Equal(t, 100, w.pullRefs(repoOf(alice)))
		for i, ev := range evs {
			require.Equal(t, i >= 200, w.hasRef(ev), i)
			require.True(t, w.relay.has(ev), "all are served")
		}
		require.Equal(t, uint64(200), w.p.Status().Dropped["pull_displaced"])
		// Other authors have their own refs, and members any number.
		_ = many(dave, 5)
		require.Equal(t, 105, w.pullRefs(repoOf(alice)))
		_ = many(alice, 150)
		require.Equal(t, 255, w.pullRefs(repoOf(alice)))
		wait(2 * time.Hour)
		require.Zero(t, w.p.Status().PullRequests)
		require.Equal(t, 255, w.pullRefs(repoOf(alice)))
	})
}

// Strangers with free keys do not displace refs of honest pull requests. An author has at most as
// many as the others, and no author loses the only one. Before, they could fill all 5,000 refs of a
// repository.
func TestCaseH5_FreeKeysTakeNoRef(t *testing.T) {
	racetest.Amounts(t)
	const refs = 5_000
	for name, tip := range map[string]int{"the tip of main": 1, "an ancestor of main": 9, "a commit of their own": 100} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				w.serveAlice()
				w.git.Needs(object(1), object(9))
				honest, own := proposes(bob, now()-10_000, 2, "honest"), proposes(alice, now()-10_000, 3, "own")
				w.held(honest)
				w.held(own)
				wait(time.Second)
				strangers := 100
				if tip == 100 {
					strangers += refs
				}
				var flood []*nostrEvent
				for i := range strangers {
					of := tip
					if tip == 100 {
						of += i
						w.git.Put(repoOf(alice), object(of))
					}
					flood = append(flood, proposes(relaytest.NewCheapKey(fmt.Sprint("stranger", i)), now(), of, "x"))
				}
				have := 0 // existing refs
				if tip == 100 {
					have = refs - 10
					w.stored(flood[:have]...)
				}
				for i, ev := range flood[have:] {
					w.held(ev)
					if i%100 == 0 {
						wait(time.Second)
					}
				}
				wait(time.Minute)
				require.True(t, w.hasRef(honest))
				require.True(t, w.hasRef(own))
				if tip != 100 {
					require.Equal(t, 2, w.pullRefs(repoOf(alice)))
					for _, ev := range flood {
						require.True(t, w.relay.has(ev), "it needs no ref")
					}
					return
				}
				require.Equal(t, refs+1, w.pullRefs(repoOf(alice)), "the member's is not counted")
				late := proposes(dave, now(), 4, "late")
				w.held(late)
				wait(time.Second)
				require.False(t, w.relay.has(late))
				w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{refOf(flood[0]): {}})
				wait(2 * time.Hour)
				require.Equal(t, refs+1, w.pullRefs(repoOf(alice)), "one that was refused has the room")
			})
		})
	}
}

// A ref that is pushed after its event counts like one that is pushed before. Before, publishing
// first evaded the limit.
func TestPushAfterTheEventIsRationed(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.serveAlice()
		var evs []*nostrEvent
		for i := range 150 {
			ev := proposes(carol, now()-1_000+nostrTime(i), 2, fmt.Sprint(i))
			evs = append(evs, ev)
			w.relay.put(ev)
			require.Empty(t, w.pushFor(ev, 100))
		}
		require.Equal(t, 100, w.pullRefs(repoOf(alice)))
		require.Empty(t, w.pushFor(evs[0], 100), "it is the newest now")
		require.Equal(t, 100, w.pullRefs(repoOf(alice)))
		require.Equal(t, uint64(51), w.p.Status().Dropped["pull_displaced"])
		require.Empty(t, w.pushFor(evs[149], 100), "which is there")
		mine := proposes(alice, now(), 3, "mine")
		w.relay.put(mine)
		require.Empty(t, w.pushFor(mine, 100<<30))
	})
}

// The bytes of strangers' pull requests are bounded. An author makes room with the author's own
// refs, in both orders. Objects that branches need do not count.
func TestBytesOfStrangersAreBounded(t *testing.T) {
	const mib = 1 << 20
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: 10 * mib}}, func(t *testing.T, w *world) {
		w.serveAlice()
		w.git.Size(object(1), 100*mib) // the branch
		for n, size := range map[int]int64{2: 6 * mib, 3: 3 * mib, 4: 4 * mib, 5: mib, 6: 11 * mib, 7: 20 * mib, 8: mib} {
			w.git.Size(object(n), size)
		}
		w.git.Needs(object(4), object(1))
		at := now() - 100
		big, small := proposes(carol, at+1, 2, ""), proposes(carol, at+2, 3, "")
		for _, ev := range []*nostrEvent{big, small} {
			w.held(ev)
			wait(time.Second)
			require.True(t, w.hasRef(ev))
		}
		daves := proposes(dave, at+3, 4, "")
		w.held(daves)
		wait(time.Second)
		require.True(t, w.hasRef(daves))
		require.False(t, w.hasRef(big), "carol has two")
		require.True(t, w.hasRef(small))
		// A push of this size may not exceed the limit.
		more := proposes(bob, at+4, 6, "")
		w.relay.put(more)
		require.Contains(t, w.pushFor(more, 11*mib), "rate-limited: ")
		require.Contains(t, w.pushFor(more, 8*mib), "rate-limited: ", "each has one")
		fair := proposes(bob, at+5, 5, "")
		w.relay.put(fair)
		require.Empty(t, w.pushFor(fair, mib))
		require.True(t, w.hasRef(daves))
		// A pull request that exceeds the limit alone never has room, and displaces no other.
		w.held(proposes(relaytest.NewKey("eve"), at, 7, ""))
		wait(time.Second)
		require.Equal(t, 3, w.pullRefs(repoOf(alice)))
		// When it is merged, it belongs to the repository and frees room, also after a restart.
		w.stop()
		w.start()
		w.relay.put(says(alice, now(), "main", 4))
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(4)})
		w.git.Put(repoOf(alice), object(2))
		again := proposes(relaytest.NewKey("frank"), at+6, 2, "")
		w.held(again)
		wait(time.Second)
		require.True(t, w.hasRef(again))
		require.True(t, w.hasRef(daves))
		require.Equal(t, 4, w.pullRefs(repoOf(alice)))
	})
}

// Data of a pull request without room is not kept. Before, it stayed in the repository for weeks,
// and could be sent again each day.
func TestFetchedBeyondTheRoomIsNotKept(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: 1000}}, func(t *testing.T, w *world) {
		w.serveAlice()
		asked := 0
		servers := map[string]int64{"large.example/r.git": 5000, "small.example/r.git": 300}
		var evs []*nostrEvent
		for i, name := range []string{"large.example/r.git", "small.example/r.git"} {
			s := serving(20 + i)
			s.Bytes = servers[name]
			w.git.Serve(clone(name), s)
			w.git.Size(object(20+i), servers[name])
			evs = append(evs, carol.Event(now(), graspsync.KindPullRequest, name, nostrTag{"a", repoOf(alice).String()},
				nostrTag{"c", object(20 + i).String()}, nostrTag{"clone", "https://" + name}))
			w.held(evs[i])
			wait(5 * time.Minute)
		}
		require.False(t, w.hasRef(evs[0]))
		require.True(t, w.hasRef(evs[1]))
		require.Positive(t, w.p.Status().Dropped["pull_refs"])
		dir, unlock, err := w.git.Lock(t.Context(), repoOf(alice))
		require.NoError(t, err)
		kinds, err := w.git.Stat(t.Context(), dir, []nip34.ObjectID{object(20), object(21)})
		require.NoError(t, err)
		unlock()
		require.NotContains(t, kinds, object(20))
		require.Contains(t, kinds, object(21))
		wait(20 * time.Hour)
		for _, c := range w.git.Calls() {
			if c.URL.HostPort().Host == "large.example" && slices.Contains(c.Want, object(20)) {
				asked++
			}
		}
		require.Equal(t, 1, asked, "and is not asked for again")
	})
}
