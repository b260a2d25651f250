package sync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// badStore saves nothing while it is down, and never saves a batch with poison.
type badStore struct {
	relaysync.Store
	down   atomic.Bool
	poison atomic.Value // id, a string
}

func (b *badStore) cure() { b.poison.Store("") }

func (b *badStore) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	if b.down.Load() || slices.ContainsFunc(events, func(in graspsync.Incoming) bool { return in.Event.Event.ID == b.poison.Load() }) {
		return nil, errors.New("disk I/O error")
	}
	return b.Store.Save(ctx, events)
}

// If a disk was full for an hour, all events of that time were lost until the next day.
func TestStoreDownForHoursLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := &badStore{Store: memstore.New()}
		p := newPipeline(t, store, relaysync.Config{})
		owner := relaytest.NewCheapKey("owner")
		p.bring(owner.Hosted(at(time.Hour), "repo", us))
		store.down.Store(true)
		var events []*nostr.Event
		for i := range 10 {
			events = append(events, owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint(i)))
		}
		p.bring(events...)
		after(6 * time.Hour)
		require.Zero(t, p.m.Dropped("unsaved"))
		store.down.Store(false)
		after(5 * time.Minute)
		for _, ev := range events {
			require.True(t, p.has(ev))
		}
	})
}

// One event on which the Store fails made the other events of its batch, and those waiting with it,
// fail too.
func TestOneEventThatCannotBeSaved(t *testing.T) {
	for _, others := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			store := &badStore{Store: memstore.New()}
			p := newPipeline(t, store, relaysync.Config{})
			owner := relaytest.NewCheapKey("owner")
			p.bring(owner.Hosted(at(time.Hour), "repo", us))
			store.down.Store(true)
			var events []*nostr.Event
			for i := range 10 {
				events = append(events, owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint(i)))
			}
			store.poison.Store(events[3].ID)
			p.bring(events...)
			after(time.Minute)
			store.down.Store(false)
			after(30 * time.Minute)
			for i, ev := range events {
				require.Equal(t, i != 3, p.has(ev))
			}
			if others { // their success shows that the Store works
				for i := range 10 {
					p.bring(owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint("later", i)))
					after(2 * time.Minute)
				}
			}
			after(20 * time.Hour)
			require.Zero(t, p.m.Dropped("unsaved"), "it is tried for ever")
			store.cure()
			if others {
				p.bring(events[3])
			}
			after(5 * time.Minute)
			require.True(t, p.has(events[3]))
		})
	}
}
