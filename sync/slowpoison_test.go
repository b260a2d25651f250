package sync_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// endlessStore is a Store whose Save hangs for a batch that contains poison.
type endlessStore struct {
	relaysync.Store
	poison atomic.Value // id, a string
	waited atomic.Int64 // total time until the calls were canceled
	slow   atomic.Bool  // a call takes a second
	down   atomic.Bool  // no call works
}

func (s *endlessStore) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	if s.down.Load() {
		return nil, errBroken
	}
	if slices.ContainsFunc(events, func(in graspsync.Incoming) bool { return in.Event.Event.ID == s.poison.Load() }) {
		began := time.Now()
		<-ctx.Done()
		s.waited.Add(int64(time.Since(began)))
		return nil, ctx.Err()
	}
	if s.slow.Load() {
		time.Sleep(time.Second)
	}
	return s.Store.Save(ctx, events)
}

// One event on which the Store hangs delayed all events of its batch, each time for the timeout of
// the Store, and all events behind them.
func TestOneEventThatTheStoreComesToNoEndWith(t *testing.T) {
	racetest.Amounts(t)
	for _, place := range []int{0, 100, 199} {
		t.Run(fmt.Sprint(place), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := &endlessStore{Store: memstore.New()}
				p := newPipeline(t, store, relaysync.Config{})
				owner := relaytest.NewCheapKey("owner")
				p.bring(owner.Hosted(at(time.Hour), "repo", us))
				var events []*nostr.Event
				for i := range 200 {
					events = append(events, owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint(i)))
				}
				store.poison.Store(events[place].ID)
				store.slow.Store(true) // so that the events form one batch
				p.bring(owner.Issue(at(0), owner.Ref("repo"), "first"))
				p.bring(events...)
				store.slow.Store(false)
				began := time.Now()
				missing := func() (n int) {
					for _, ev := range events {
						if !p.has(ev) {
							n++
						}
					}
					return n
				}
				for missing() > 1 && time.Since(began) < time.Hour {
					after(10 * time.Second)
				}
				took := time.Since(began)
				require.Equal(t, 1, missing())
				assert.LessOrEqual(t, took, 6*time.Minute)
				store.waited.Store(0)
				after(4 * time.Hour)
				assert.Less(t, time.Duration(store.waited.Load()), time.Hour, "of four hours: others get in beside it")
				store.poison.Store("")
				after(4*time.Hour + time.Minute)
				require.Zero(t, missing())
			})
		})
	}
}
