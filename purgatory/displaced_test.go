package purgatory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// leavingStore is a store whose clients disconnect during a write.
type leavingStore struct {
	state.Store
	leave func()
}

func (s *leavingStore) Put(ctx context.Context, records ...state.Record) error {
	err := s.Store.Put(context.WithoutCancel(ctx), records...)
	if s.leave(); ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (s *leavingStore) Delete(ctx context.Context, keys ...string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.Store.Delete(ctx, keys...)
}

// A client that disconnects during the write leaves no event on the disk. Before, such events and
// the events that they evicted stayed, counted in no quota, and could fill the disk.
func TestWhoGoesLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Limits: purgatory.Limits{MaxEntries: 16}})
		store := &leavingStore{Store: w.state, leave: func() {}}
		w.state = store
		w.start()
		w.relay.put(announce(alice, now()))
		for i := range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			store.leave = cancel
			_, _ = w.p.Submit(ctx, eventtest.Of(proposes(relaytest.NewKey(fmt.Sprint("eve", i%10)), now(), i, fmt.Sprint(i))), graspsync.Source{})
			cancel()
			wait(10 * time.Second)
		}
		store.leave = func() {}
		kept := 0
		for _, err := range store.Each(t.Context(), "purgatory/entry/") {
			require.NoError(t, err)
			kept++
		}
		require.Equal(t, len(w.p.Held(nostrFilter{})), kept)
		require.Positive(t, w.p.Status().Ended[purgatory.Displaced])
		w.stop()
	})
}
