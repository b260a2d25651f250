package eventstoreadapter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/storetest"
)

// mapBackend is a database of a relay's own, here a map: it can save, query, delete and count. Which
// versions stay, what deletions cover and whether an answer is complete the Store sees to.
type mapBackend struct {
	mu     sync.Mutex
	events map[string]*nostr.Event
}

var (
	_ eventstore.Store   = (*mapBackend)(nil)
	_ eventstore.Counter = (*mapBackend)(nil)
)

func newMapBackend() *mapBackend { return &mapBackend{events: make(map[string]*nostr.Event)} }

func (b *mapBackend) Init() error { return nil }
func (b *mapBackend) Close()      {}

func (b *mapBackend) SaveEvent(_ context.Context, e *nostr.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events[e.ID] = e
	return nil
}

// ReplaceEvent is of no interest to the Store.
func (b *mapBackend) ReplaceEvent(ctx context.Context, e *nostr.Event) error {
	return b.SaveEvent(ctx, e)
}

func (b *mapBackend) DeleteEvent(_ context.Context, e *nostr.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.events, e.ID)
	return nil
}

// matching returns what matches, the newest first.
func (b *mapBackend) matching(f nostr.Filter) (found []*nostr.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if f.Matches(e) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, nostr.CompareEventPtrReverse)
	return found
}

func (b *mapBackend) QueryEvents(_ context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	found := b.matching(f)
	if f.Limit > 0 {
		found = found[:min(f.Limit, len(found))]
	}
	out := make(chan *nostr.Event, len(found))
	for _, e := range found {
		out <- e
	}
	close(out)
	return out, nil
}

func (b *mapBackend) CountEvents(_ context.Context, f nostr.Filter) (int64, error) {
	return int64(len(b.matching(f))), nil
}

// A backend of one's own: of what can save, query, delete and count, New makes a Store.
func ExampleNew_backend() {
	store, err := eventstoreadapter.New(newMapBackend(), eventstoreadapter.Config{})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	alice := relaytest.NewKey("alice")
	for _, raw := range []*nostr.Event{
		alice.Hosted(1_700_000_001, "repo", "grasp.example"),
		alice.Hosted(1_700_000_000, "repo", "grasp.example"), // an older version
	} {
		ev, err := graspsync.ParseEvent(raw)
		if err != nil {
			panic(err)
		}
		outcomes, err := store.Save(context.Background(), []graspsync.Incoming{{Event: ev}})
		if err != nil {
			panic(err)
		}
		fmt.Println(outcomes[0].Result)
	}
	// Output:
	// stored
	// superseded
}

func TestSuiteMapBackend(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store { return newStore(t, newMapBackend(), eventstoreadapter.Config{}) })
}
