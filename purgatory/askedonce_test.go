package purgatory_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
)

// askedRelay counts the calls of Deleted.
type askedRelay struct {
	*relay

	mu    sync.Mutex
	asked map[graspsync.EventID]int
	fails func() error
}

func (r *askedRelay) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[ev.ID]++
	if r.fails != nil {
		if err := r.fails(); err != nil {
			return false, err
		}
	}
	return r.relay.Deleted(ctx, ev)
}

// asking is run with an askedRelay.
func asking(t *testing.T, test func(t *testing.T, w *world, r *askedRelay)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		r := &askedRelay{relay: w.relay, asked: make(map[graspsync.EventID]int)}
		w.host = r
		w.start()
		test(t, w, r)
		w.stop()
		require.Empty(t, w.git.Broken())
	})
}

// An event that was deleted while it was held is not released, even if the deletion was not
// reported.
func TestDeletedUntoldIsNotReleased(t *testing.T) {
	asking(t, func(t *testing.T, w *world, _ *askedRelay) {
		w.serveAlice()
		state, pr := says(alice, now(), "main", 21), proposes(bob, now(), 22, "")
		w.held(state)
		w.held(pr)
		wait(time.Second)
		w.relay.put(alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", state.ID}), bob.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", pr.ID}))
		w.git.Put(repoOf(alice), object(21), object(22))
		w.p.Pushed(t.Context(), repoOf(alice), nil)
		wait(5 * time.Second)
		require.False(t, w.relay.has(state))
		require.False(t, w.relay.has(pr))
		require.False(t, w.hasRef(pr))
		require.Equal(t, object(1), w.git.RefsOf(repoOf(alice))[branch("main")])
		require.Empty(t, w.p.Held(nostrFilter{}))
	})
}
