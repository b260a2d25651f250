package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A repository that is locked by slow pushes does not delay other repositories with the same
// identifier.
func TestLockedRepositoryHoldsUpNobodyElse(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		keys := []*relaytest.Key{alice, bob}
		honest, stranger := keys[order[0]], keys[order[1]]
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			w.held(announce(stranger, now()))
			w.held(says(stranger, now(), "main", 7))
			wait(time.Second)
			_, unlock, err := w.git.Lock(t.Context(), repoOf(stranger))
			require.NoError(t, err)
			a, s := announce(honest, now()), says(honest, now(), "main", 1)
			require.Equal(t, purgatory.Held, w.submit(a, true))
			require.Equal(t, purgatory.Held, w.submit(s, true))
			w.git.Push(repoOf(honest), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)}, object(1))
			w.p.Pushed(t.Context(), repoOf(honest), []nip34.RefName{branch("main")})
			wait(2 * time.Minute)
			require.True(t, w.relay.has(s))
			unlock()
			wait(10 * time.Minute)
		})
	}
}

// A state is served after the refs of other repositories have followed, or after a short wait,
// because there may be many and pushes may lock them. They follow later.
func TestThoseWhoFollowHoldUpAStateForAMoment(t *testing.T) {
	run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
		const others = 16
		d := nostrTag{"d", "r"}
		members := nostrTag{"maintainers", alice.Hex()}
		var keys []*relaytest.Key
		for i := range others {
			keys = append(keys, relaytest.NewKey(fmt.Sprint("other", i)))
			members = append(members, keys[i].Hex())
		}
		at := now() - 100
		for _, k := range append(keys, alice) {
			w.relay.put(k.Event(at, graspsync.KindAnnouncement, "", d, members))
			w.git.Put(repoOf(k), object(1), object(2))
			w.git.Push(repoOf(k), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		}
		w.relay.put(says(alice, at, "main", 1))
		wait(time.Minute)
		var unlocks []func()
		for _, k := range keys {
			_, unlock, err := w.git.Lock(t.Context(), repoOf(k))
			require.NoError(t, err)
			unlocks = append(unlocks, unlock)
		}
		s := says(alice, now(), "main", 2)
		began := time.Now()
		w.held(s)
		for !w.relay.has(s) && time.Since(began) < time.Minute {
			wait(10 * time.Millisecond)
		}
		t.Logf("served after %v", time.Since(began))
		const own = 5 * time.Second // wait for their locks and for this one
		require.Less(t, time.Since(began), own+1300*time.Millisecond)
		for _, unlock := range unlocks {
			unlock()
		}
		wait(10 * time.Minute)
		for _, k := range append(keys, alice) {
			require.Equal(t, object(2), w.git.RefsOf(repoOf(k))[branch("main")], "and all follow")
		}
	})
}
