package purgatory_test

import (
	"fmt"
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

// pushes is a push for a held pull request of alice's, as git would do it. It may be refused.
func (l *faultyLife) pushes(ev *nostrEvent, bytes int64) (refused bool) {
	l.t.Helper()
	pr, err := nip34.ParsePullRequest(eventtest.Of(ev))
	require.NoError(l.t, err)
	l.try(func() error {
		dir, unlock, err := l.git.Lock(l.t.Context(), repoOf(alice))
		if err != nil {
			return err
		}
		defer unlock()
		said, err := l.p.AdmitPullRefs(l.t.Context(), repoOf(alice), dir, []*nip34.PullRequest{pr}, bytes)
		if err != nil {
			return err
		}
		if refused = said[pr.ID] != ""; !refused {
			l.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{refOf(ev): pr.Tip}, pr.Tip)
		}
		return nil
	})
	return refused
}

// littleRoom makes alice's repository served, with a branch, two pull requests of carol's and
// almost no room.
func (l *faultyLife) littleRoom() (big, small *nostrEvent) {
	l.cfg.Limits.MaxPullBytes = 1000
	l.serveAlice()
	for n, size := range map[int]int64{1: 1, 2: 600, 3: 300, 4: 400, 5: 100, 6: 700, 21: 300} {
		l.git.Size(object(n), size)
	}
	big, small = proposes(carol, now()-90, 2, "big"), proposes(carol, now()-80, 3, "small")
	l.stored(big, small)
	return big, small
}

// The same with little room for pull requests. The author with the most loses refs to a new one, a
// pushed one, a push, and fetched data. Then one is merged.
func TestEachFailureWhereThereIsLittleRoomIsMadeUpFor(t *testing.T) {
	racetest.Amounts(t)
	eachFailure(t, 100, func(l *faultyLife) string {
		big, small := l.littleRoom()
		l.open()
		staged := proposes(dave, now()-70, 4, "staged")
		l.git.Stage(repoOf(alice), idOf(staged), object(4), object(4))
		l.comes(staged)
		wait(3 * time.Hour) // evicted data is deleted
		require.False(l.t, l.hasRef(big), l.f.failed())
		require.True(l.t, l.hasRef(small), l.f.failed())
		require.True(l.t, l.hasRef(staged), l.f.failed())
		pushed := proposes(bob, now(), 5, "pushed")
		l.relay.put(pushed)
		require.False(l.t, l.pushes(pushed, 100), l.f.failed())
		large := proposes(dave, now(), 6, "large")
		l.relay.put(large)
		require.True(l.t, l.pushes(large, 700), l.f.failed())
		server := serving(21)
		server.Bytes = 300
		l.git.Serve(clone("b.example/r.git"), server)
		fetched := bob.Event(now(), graspsync.KindPullRequest, "", nostrTag{"a", repoOf(alice).String()},
			nostrTag{"c", object(21).String()}, nostrTag{"clone", "https://b.example/r.git"})
		l.comes(fetched)
		wait(2 * time.Hour)
		l.stop()
		l.open()
		l.relay.put(says(alice, now(), "main", 4))
		l.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(4)})
		l.comes(proposes(relaytest.NewKey("eve"), now(), 2, "again"))
		wait(3 * time.Hour)
		return fmt.Sprint(l.git.RefsOf(repoOf(alice)), l.p.Status().Waiting)
	})
}

// The same for a push that needs room of others.
func TestEachFailureOfAPushThatMakesRoomIsMadeUpFor(t *testing.T) {
	eachFailure(t, 10, func(l *faultyLife) string {
		big, small := l.littleRoom()
		l.open()
		pushed := proposes(dave, now(), 4, "pushed")
		l.relay.put(pushed)
		require.False(l.t, l.pushes(pushed, 400), l.f.failed())
		require.True(l.t, l.hasRef(pushed), l.f.failed())
		wait(3 * time.Hour)
		return fmt.Sprint(l.hasRef(big), l.hasRef(small), l.git.RefsOf(repoOf(alice)))
	})
}

// The same for repositories that expire or leave: one with refs of strangers only, one without
// announcement, and one whose owner has left.
func TestEachFailureOfLeavingIsMadeUpFor(t *testing.T) {
	eachFailure(t, 50, func(l *faultyLife) string {
		l.often = true
		l.cfg.Times.Hold, l.cfg.Fixed().MaxHold, l.cfg.Fixed().SoftExpiry, l.cfg.Times.Departed = 10*time.Minute, 20*time.Minute, 10*time.Minute, 3*time.Hour
		a := served(l.world)
		b := announce(bob, now()-100)
		l.relay.put(b)
		l.git.Put(repoOf(bob))
		l.open()
		l.comes(announce(carol, now()))
		wait(time.Second)
		p := pull(dave, repoOf(carol), 5, graspsync.KindPullRequest)
		l.relay.put(p)
		l.git.Push(repoOf(carol), map[nip34.RefName]nip34.ObjectID{refOf(p): object(5)}, object(5))
		wait(15 * time.Minute)
		l.relay.gone(a)
		l.p.NotifySuperseded(eventtest.Of(a))
		l.relay.gone(b)
		l.p.NotifySuperseded(eventtest.Of(b))
		wait(time.Minute)
		early := l.git.Has(repoOf(bob))
		wait(2 * time.Hour)
		require.True(l.t, l.f.failed() != "" || !early, "it is looked at when it is told")
		out := fmt.Sprint(l.p.Status().Waiting)
		for _, ref := range []graspsync.RepoRef{repoOf(alice), repoOf(bob), repoOf(carol)} {
			out += fmt.Sprint(" ", l.git.Has(ref), l.git.Kept(ref))
		}
		wait(4 * time.Hour)
		return out + fmt.Sprint(l.git.Kept(repoOf(alice)), l.git.Kept(repoOf(carol)))
	})
}

// The same if the relay refuses events that have their refs: a pull request, an announcement with a
// state, and a state without an earlier stored state.
func TestEachFailureOfWhatIsRefusedIsMadeUpFor(t *testing.T) {
	racetest.Amounts(t)
	eachFailure(t, 50, func(l *faultyLife) string {
		l.often = true
		l.relay.put(announce(alice, now()-500))
		l.git.Put(repoOf(alice), object(1), object(2))
		bad := []*nostrEvent{says(alice, now()-100, "main", 1), pull(dave, repoOf(alice), 2, graspsync.KindPullRequest), announce(bob, now()-50)}
		l.relay.refuse = func(ev *nostrEvent) error {
			for _, b := range bad {
				if ev.ID == b.ID {
					return purgatory.ErrRefused
				}
			}
			return nil
		}
		l.open()
		l.comes(bad...)
		l.comes(says(bob, now(), "main", 3))
		wait(time.Second)
		if l.git.Has(repoOf(bob)) {
			l.git.Push(repoOf(bob), nil, object(3))
		}
		l.p.Pushed(l.t.Context(), repoOf(bob), nil)
		wait(5 * time.Hour)
		st := l.p.Status()
		return fmt.Sprint(l.git.RefsOf(repoOf(alice)), l.git.RefsOf(repoOf(bob)), st.Waiting)
	})
}

// The same with a small table: an author with many events is evicted, records of expired events are
// evicted, and data staged for an event that is stored elsewhere is imported.
func TestEachFailureWhereFewMayWaitIsMadeUpFor(t *testing.T) {
	racetest.Amounts(t)
	eachFailure(t, 50, func(l *faultyLife) string {
		l.often = true
		l.cfg.Limits.MaxEntries, l.cfg.Fixed().MaxRemembered, l.cfg.Times.Hold, l.cfg.Fixed().MaxHold = 4, 1, 20*time.Minute, 20*time.Minute
		l.relay.put(announce(alice, now()-500))
		l.git.Put(repoOf(alice), object(1))
		l.open()
		var many []*nostrEvent
		for i := range 3 {
			many = append(many, proposes(carol, now()+nostrTime(i), 50+i, "many"))
		}
		l.comes(many...)
		wait(2 * time.Minute) // they have been held for a while
		l.comes(proposes(dave, now(), 60, "one"), proposes(bob, now(), 61, "another"))
		pushed := pull(bob, repoOf(alice), 1, graspsync.KindPullRequest)
		l.goes(repoOf(alice), refOf(pushed), 1)
		l.relay.put(pushed)
		l.p.NotifyStored(eventtest.Of(pushed))
		wait(time.Hour)
		l.comes(many[0])
		again := l.p.Status().PullRequests
		wait(time.Hour)
		return fmt.Sprint(again, l.p.Status().PullRequests, l.git.RefsOf(repoOf(alice)))
	})
}

// The same for a repository that is recreated in the object format of its state.
func TestEachFailureOfMakingARepositoryAnewIsMadeUpFor(t *testing.T) {
	eachFailure(t, 10, func(l *faultyLife) string {
		l.often = true
		l.relay.put(announce(alice, now()-500))
		l.git.Put(repoOf(alice))
		l.open()
		s := alice.Event(now(), graspsync.KindState, "", nostrTag{"d", "r"}, nostrTag{"HEAD", "ref: refs/heads/main"},
			nostrTag{"refs/heads/main", object256(1).String()})
		l.comes(s)
		wait(10 * time.Minute)
		l.git.Push(repoOf(alice), nil, object256(1))
		l.p.Pushed(l.t.Context(), repoOf(alice), nil)
		wait(10 * time.Minute)
		require.True(l.t, l.relay.has(s), l.f.failed())
		return fmt.Sprint(l.git.RefsOf(repoOf(alice)))
	})
}
