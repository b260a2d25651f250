package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// bytesOf returns the size of the objects in a repository.
func (w *world) bytesOf(of *relaytest.Key) (sum int64) {
	for _, id := range w.git.Objects(repoOf(of)) {
		sum += w.git.Bytes(id)
	}
	return sum
}

// lyingAt returns a pull request to alice's repository with a clone URL.
func lyingAt(by *relaytest.Key, tip int, u string) *nostrEvent {
	return by.Event(now(), graspsync.KindPullRequest, fmt.Sprint(tip), nostrTag{"a", repoOf(alice).String()},
		nostrTag{"c", object(tip).String()}, nostrTag{"clone", "https://" + u})
}

// Objects that a small pull request shares with a large one without room count for the small one.
// Before, they counted only for the large one, and both got refs.
func TestWhatHasNoRoomCountsForWhoNeedsIt(t *testing.T) {
	const most = 1000
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: most}}, func(t *testing.T, w *world) {
		w.serveAlice()
		for i := range 5 {
			large, small := 100+2*i, 101+2*i
			w.git.Size(object(large), most+5)
			w.git.Size(object(small), 10)
			w.git.Needs(object(small), object(large))
			w.git.Put(repoOf(alice), object(large), object(small))
			eve := relaytest.NewKey(fmt.Sprint("eve", i))
			first := proposes(eve, now(), large, "large")
			second := proposes(eve, now(), small, "small")
			for n := 0; second.ID < first.ID; n++ { // so that the large one is measured first
				second = proposes(eve, now(), small, fmt.Sprint(n))
			}
			w.held(first)
			w.held(second)
			wait(time.Minute)
			require.False(t, w.hasRef(first))
			require.False(t, w.hasRef(second))
			require.Zero(t, w.pullRefs(repoOf(alice)))
		}
		w.git.Size(object(50), 300)
		w.git.Put(repoOf(alice), object(50))
		honest := proposes(dave, now(), 50, "honest")
		w.held(honest)
		wait(time.Second)
		require.True(t, w.hasRef(honest))
	})
}

// Objects of a pull request without room count if they came together with one that has room.
// Before, one author could add them day after day without a limit.
func TestWhatIsFetchedBesideCounts(t *testing.T) {
	const most = 1000
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: most, MaxRepoDay: 4 * most}}, func(t *testing.T, w *world) {
		w.serveAlice()
		worst := int64(0)
		for i := range 20 {
			small, large, u := 100+2*i, 101+2*i, fmt.Sprintf("eve%d.example/r.git", i)
			s := serving(small, large)
			s.Bytes = most + 15
			w.git.Serve(clone(u), s)
			w.git.Size(object(small), 10)
			w.git.Size(object(large), most+5)
			eve := relaytest.NewKey(fmt.Sprint("eve", i))
			w.held(lyingAt(eve, small, u))
			w.held(lyingAt(eve, large, u))
			for range 12 * 60 / 5 {
				wait(5 * time.Minute)
				worst = max(worst, w.bytesOf(alice))
			}
		}
		require.LessOrEqual(t, worst, int64(3*most))
		require.LessOrEqual(t, w.bytesOf(alice), int64(most))
	})
}

// Unneeded or incomplete objects in a reply count as well. Before, they could be added day after
// day, and stayed for two weeks.
func TestWhatIsFetchedInVainCounts(t *testing.T) {
	const most = 1000
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: most, MaxRepoDay: 4 * most}}, func(t *testing.T, w *world) {
		w.serveAlice()
		worst := int64(0)
		for i := range 20 {
			small, part, u := 100+2*i, 101+2*i, fmt.Sprintf("eve%d.example/r.git", i)
			s := serving(small, part)
			s.Bytes = most - 50
			w.git.Serve(clone(u), s)
			w.git.Size(object(small), 10)
			w.git.Size(object(part), most-60)
			w.git.Needs(object(part), object(1000+i))
			eve := relaytest.NewKey(fmt.Sprint("eve", i))
			w.held(lyingAt(eve, small, u))
			w.held(lyingAt(eve, part, u))
			for range 12 * 60 / 5 {
				wait(5 * time.Minute)
				worst = max(worst, w.bytesOf(alice))
			}
		}
		t.Logf("at most %d bytes", worst)
		require.LessOrEqual(t, worst, int64(3*most))
		require.LessOrEqual(t, w.bytesOf(alice), int64(most))
	})
}

// Data of a pull request that is deleted during its fetch is discarded.
func TestWhatIsDeletedWhileItIsFetchedBringsNothing(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: 1000}}, func(t *testing.T, w *world) {
		w.serveAlice()
		s := serving(50)
		s.Bytes, s.Delay = 5000, time.Minute
		w.git.Serve(clone("eve.example/r.git"), s)
		w.git.Size(object(50), 5000)
		eve := relaytest.NewKey("eve")
		ev := lyingAt(eve, 50, "eve.example/r.git")
		w.held(ev)
		wait(30 * time.Second)
		deletion := eve.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", ev.ID})
		w.relay.put(deletion)
		w.p.NotifyStored(eventtest.Of(deletion))
		wait(10 * time.Minute)
		require.Len(t, w.git.Calls(), 1)
		require.Zero(t, w.p.Status().PullRequests)
		require.Zero(t, w.bytesOf(alice))
		require.Zero(t, w.git.Quarantines())
	})
}

// Pull requests that each fit, but not together, are limited when they come from another
// repository.
func TestWhatIsSharedHasRoomTogether(t *testing.T) {
	const most = 1000
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: most}, Times: purgatory.Times{Hold: 20 * time.Hour}}.With(purgatory.Fixed{MaxHold: 20 * time.Hour}), func(t *testing.T, w *world) {
		w.serveAlice()
		mallory := relaytest.NewKey("mallory")
		w.relay.put(announce(mallory, now()-100), says(mallory, now()-100, "main", 1))
		w.git.Put(repoOf(mallory), object(1))
		w.git.Push(repoOf(mallory), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		both := func(by *relaytest.Key, tip int) *nostrEvent {
			return by.Event(now(), graspsync.KindPullRequest, "for both", nostrTag{"a", repoOf(alice).String()},
				nostrTag{"a", repoOf(mallory).String()}, nostrTag{"c", object(tip).String()})
		}
		var tips []nip34.ObjectID
		var small []*nostrEvent
		for i := range 50 {
			w.git.Size(object(100+i), 900)
			tips = append(tips, object(100+i))
			w.held(both(relaytest.NewKey(fmt.Sprint("eve", i)), 100+i))
		}
		for i := range 5 {
			w.git.Size(object(50+i), 10)
			tips = append(tips, object(50+i))
			small = append(small, both(dave, 50+i))
			w.held(small[i])
		}
		wait(time.Second)
		w.git.Put(repoOf(mallory), tips...)
		w.p.Pushed(t.Context(), repoOf(mallory), nil)
		worst := int64(0)
		for range 60 {
			wait(time.Minute)
			worst = max(worst, w.bytesOf(alice))
		}
		require.LessOrEqual(t, worst, int64(3*most))
		require.LessOrEqual(t, w.p.PullBytes(alice.PubKey()), int64(2*most))
		for _, ev := range small {
			require.True(t, w.hasRef(ev), "one after the other")
		}
	})
}
