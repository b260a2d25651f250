package khatruadapter

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/internal/embedding"
)

// A synced deletion that arrived while a published event was between two hooks removed nothing. The
// event stayed in the backend or a second store and was served.
func TestDeletionBetweenTheHooksOfAnEvent(t *testing.T) {
	for _, when := range []string{"before the backend", "after the backend"} {
		for name, kind := range map[string]int{"issue": 1621, "announcement": 30617} {
			t.Run(when+", "+name, func(t *testing.T) {
				relay, db, second, deleted := withTwo(t)
				e := event(alice, kind, start, nostr.Tag{"d", "repo"})
				names := nostr.Tag{"e", e.ID}
				if kind == 30617 {
					names = nostr.Tag{"a", "30617:" + alice + ":repo"}
				}
				deletion := event(alice, 5, start+5, names)
				var store *embedding.Imports
				during := func(_ context.Context, stored *nostr.Event) error {
					if stored.ID == e.ID {
						importEvents(t, store, deletion)
					}
					return nil
				}
				at := map[string]int{"before the backend": 0, "after the backend": 1}[when]
				insert := func(hooks *[]func(context.Context, *nostr.Event) error) {
					all := append([]func(context.Context, *nostr.Event) error{}, (*hooks)[:at]...)
					*hooks = append(append(all, during), (*hooks)[at:]...)
				}
				insert(&relay.StoreEvent)
				insert(&relay.ReplaceEvent)
				_, store, m := embed(t, relay, db, Config{})
				_, err := relay.AddEvent(t.Context(), e)
				require.NoError(t, err)
				assert.Equal(t, []string{deletion.ID}, in(t, db))
				assert.Equal(t, []string{deletion.ID}, in(t, second))
				assert.Contains(t, *deleted, e.ID)
				assert.Equal(t, []string{e.ID}, m.gone(), "what was followed is not any more")
			})
		}
	}
}

// With concurrent published events and synced deletions of them, no deleted event is left and no
// call blocks forever.
func TestSavesAndDeletionsAtOnce(t *testing.T) {
	for name, own := range map[string]bool{"our hooks": false, "hooks of the relay": true} {
		t.Run(name, func(t *testing.T) {
			relay, db := khatru.NewRelay(), newSlice(t)
			locked := &lockedSlice{SliceStore: db}
			if own {
				relay.StoreEvent = append(relay.StoreEvent, locked.SaveEvent)
				relay.ReplaceEvent = append(relay.ReplaceEvent, locked.ReplaceEvent)
				relay.QueryEvents = append(relay.QueryEvents, locked.QueryEvents)
				relay.DeleteEvent = append(relay.DeleteEvent, locked.DeleteEvent)
			}
			s, store, _ := embed(t, relay, locked, Config{})
			var wg sync.WaitGroup
			var deletions []string
			for i := range 40 {
				e := event([]string{alice, bob}[i%2], 1621, start+nostr.Timestamp(i), nostr.Tag{"n", fmt.Sprint(i)})
				d := event(e.PubKey, 5, start+100, nostr.Tag{"e", e.ID})
				deletions = append(deletions, d.ID)
				wg.Go(func() { _, _ = relay.AddEvent(context.Background(), e) }) // it can be refused already
				wg.Go(func() { importEvents(t, store, d) })
			}
			wg.Wait()
			assert.ElementsMatch(t, deletions, content(t, s.Store()))
		})
	}
}

// lockedSlice is a slicestore that is safe for concurrent use.
type lockedSlice struct {
	*slicestore.SliceStore
	mu sync.Mutex
}

func (l *lockedSlice) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ch, err := l.SliceStore.QueryEvents(ctx, f)
	if err != nil {
		return nil, err
	}
	var all []*nostr.Event
	for e := range ch {
		all = append(all, e)
	}
	out := make(chan *nostr.Event, len(all))
	for _, e := range all {
		out <- e
	}
	close(out)
	return out, nil
}

func (l *lockedSlice) SaveEvent(ctx context.Context, e *nostr.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.SliceStore.SaveEvent(ctx, e)
}

func (l *lockedSlice) ReplaceEvent(ctx context.Context, e *nostr.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.SliceStore.ReplaceEvent(ctx, e)
}

func (l *lockedSlice) DeleteEvent(ctx context.Context, e *nostr.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.SliceStore.DeleteEvent(ctx, e)
}

func (l *lockedSlice) CountEvents(ctx context.Context, f nostr.Filter) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.SliceStore.CountEvents(ctx, f)
}
