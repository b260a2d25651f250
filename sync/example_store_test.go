package sync_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// mapStore is the smallest complete Store, in a map. It examines every event for each filter and is
// not durable.
type mapStore struct {
	us     nip34.Identity
	mu     sync.Mutex
	events map[graspsync.EventID]graspsync.Event
	tombs  *nip34.Tombstones // of the deletions and requests to vanish among events
}

func newMapStore(us nip34.Identity) *mapStore {
	return &mapStore{us: us, events: make(map[graspsync.EventID]graspsync.Event), tombs: nip34.NewTombstones(us)}
}

// Save implements [relaysync.Store].
func (s *mapStore) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := make([]graspsync.Outcome, len(events))
	for i, in := range events {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		outcomes[i] = s.save(in.Event)
	}
	return outcomes, nil
}

func (s *mapStore) save(ev graspsync.Event) graspsync.Outcome {
	switch {
	case ev.IsZero():
		return graspsync.Outcome{Result: graspsync.Refused, Err: graspsync.ErrEvent}
	case nostr.IsEphemeralKind(ev.Kind):
		return graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("kind %d is ephemeral", ev.Kind)}
	case !s.events[ev.ID].IsZero():
		return graspsync.Outcome{Result: graspsync.Duplicate}
	case s.tombs.Covers(ev):
		s.execute(ev)
		return graspsync.Outcome{Result: graspsync.Deleted}
	}
	if at, ok := ev.Address(); ok { // the newest version is kept
		for id, old := range s.events {
			if has, ok := old.Address(); !ok || has != at {
				continue
			}
			if !ev.Key().Newer(old.Key()) {
				return graspsync.Outcome{Result: graspsync.Superseded}
			}
			delete(s.events, id)
		}
	}
	s.events[ev.ID] = ev
	if ev.Kind == graspsync.KindDeletion || ev.Kind == graspsync.KindVanish {
		s.tombs.Add(ev)
		s.execute(slices.Collect(maps.Values(s.events))...)
		s.bury()
	}
	return graspsync.Outcome{Result: graspsync.Stored}
}

// execute removes those of the events that are deleted, and older versions of these.
func (s *mapStore) execute(events ...graspsync.Event) {
	for _, ev := range events {
		if at, ok := ev.Address(); ok && s.tombs.Covers(ev) {
			s.tombs.AddVersion(at, ev.Key())
		}
	}
	maps.DeleteFunc(s.events, func(_ graspsync.EventID, old graspsync.Event) bool { return s.tombs.Covers(old) })
}

// bury computes the tombstones from the stored events, because a request to vanish also removes the
// deletions of its author. A durable Store must also persist the versions of AddVersion.
func (s *mapStore) bury() {
	s.tombs.ClearDeletions()
	for _, ev := range s.events {
		s.tombs.Add(ev)
	}
}

// Has implements [relaysync.Store].
func (s *mapStore) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := make([]bool, len(ids))
	for i, id := range ids {
		_, has[i] = s.events[id]
	}
	return has, ctx.Err()
}

// Events implements [relaysync.Store].
func (s *mapStore) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return find(ctx, s, filter, func(ev graspsync.Event) graspsync.Event { return ev })
}

// Keys implements [relaysync.Store].
func (s *mapStore) Keys(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return find(ctx, s, filter, graspsync.Event.Key)
}

// find yields a part of each event that matches. It holds no lock while it yields.
func find[T any](ctx context.Context, s *mapStore, filter nostr.Filter, of func(graspsync.Event) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var found []T
		s.mu.Lock()
		for _, ev := range s.events {
			if filter.Matches(ev.Event) {
				found = append(found, of(ev))
			}
		}
		s.mu.Unlock()
		for _, it := range found {
			if ctx.Err() != nil {
				break
			}
			if !yield(it, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(*new(T), err)
		}
	}
}

// Deleted implements [relaysync.Store].
func (s *mapStore) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !ev.IsZero() && s.tombs.Covers(ev), ctx.Err()
}

// Remove implements [relaysync.Store].
func (s *mapStore) Remove(ctx context.Context, ev graspsync.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	delete(s.events, ev.ID)
	s.bury()
	return nil
}

// A custom Store in a map. It passes the tests of package storetest.
func ExampleStore() {
	ctx, alice := context.Background(), relaytest.NewKey("alice")
	var store relaysync.Store = newMapStore(nip34.Identity{})
	for _, raw := range []*nostr.Event{
		alice.Hosted(1_700_000_001, "repo", "grasp.example"),
		alice.Hosted(1_700_000_000, "repo", "grasp.example"), // an older version
		alice.Issue(1_700_000_002, alice.Ref("repo"), "it works"),
	} {
		ev, err := graspsync.ParseEvent(raw)
		if err != nil {
			panic(err)
		}
		outcomes, err := store.Save(ctx, []graspsync.Incoming{{Event: ev}})
		if err != nil {
			panic(err)
		}
		fmt.Println(ev.Kind, outcomes[0].Result)
	}
	for ev, err := range store.Events(ctx, nostr.Filter{Kinds: []int{graspsync.KindIssue}}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(ev.Tags.Find("subject"))
	}
	// Output:
	// 30617 stored
	// 30617 superseded
	// 1621 stored
	// [subject it works]
}
