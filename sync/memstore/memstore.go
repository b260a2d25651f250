package memstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// ErrEphemeral is wrapped by the error of a refused ephemeral event.
var ErrEphemeral = errors.New("ephemeral event")

// Store is an in-memory [relaysync.Store]. Use [New].
type Store struct {
	us nip34.Identity // read-only
	mu sync.RWMutex

	// guarded by mu
	events    map[graspsync.EventID]*entry
	addresses map[graspsync.Address]*entry // newest version
	index     index
	tombs     *nip34.Tombstones
	inserted  uint64
}

var _ relaysync.Store = (*Store)(nil)

type entry struct {
	event  graspsync.Event
	number uint64 // order of insertion
}

// Option configures a [Store].
type Option func(*Store)

// WithIdentity sets the service of the Store. Requests to vanish (NIP-62) for this service are
// executed. Without it, only requests for all relays are executed.
func WithIdentity(us nip34.Identity) Option {
	return func(s *Store) { s.us = us }
}

// New returns an empty Store.
func New(options ...Option) *Store {
	s := &Store{
		events:    make(map[graspsync.EventID]*entry),
		addresses: make(map[graspsync.Address]*entry),
		index:     make(index),
	}
	for _, set := range options {
		set(s)
	}
	s.tombs = nip34.NewTombstones(s.us)
	return s
}

// Len returns the number of stored events.
func (s *Store) Len() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.events)
}

// Save implements [relaysync.Store]. It fails only if the context is canceled, and then stores
// nothing.
func (s *Store) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("saving events: %w", err)
	}
	outcomes := make([]graspsync.Outcome, len(events))
	for i, in := range events {
		outcomes[i] = s.save(in.Event)
	}
	return outcomes, nil
}

// The caller holds mu.
func (s *Store) save(event graspsync.Event) graspsync.Outcome {
	switch _, known := s.events[event.ID]; {
	case event.IsZero():
		return graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: none", graspsync.ErrEvent)}
	case nostr.IsEphemeralKind(event.Kind):
		return graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: kind %d", ErrEphemeral, event.Kind)}
	case known:
		return graspsync.Outcome{Result: graspsync.Duplicate}
	case s.tombs.Covers(event):
		s.removeVersions(event)
		return graspsync.Outcome{Result: graspsync.Deleted}
	}
	if addr, ok := event.Address(); ok {
		if old := s.addresses[addr]; old != nil {
			if !event.Key().Newer(old.event.Key()) {
				return graspsync.Outcome{Result: graspsync.Superseded}
			}
			s.remove(old)
		}
	}
	s.insert(event)
	s.execute(event)
	return graspsync.Outcome{Result: graspsync.Stored}
}

// execute removes the targets of a deletion or request to vanish, and keeps tombstones for later
// events. The caller holds mu.
func (s *Store) execute(event graspsync.Event) {
	s.tombs.Add(event)
	if s.us.IsVanishRequest(event.Event) {
		s.vanish(event.Event.PubKey)
	}
	ids, at := nip34.DeletionTargets(event)
	for _, id := range ids {
		if e := s.events[id]; e != nil && s.tombs.Covers(e.event) {
			s.removeVersions(e.event)
			s.remove(e)
		}
	}
	for _, c := range at {
		if e := s.addresses[c]; e != nil && s.tombs.Covers(e.event) {
			s.remove(e)
		}
	}
}

// removeVersions removes a stored version that is older than a deleted one. The caller holds mu.
func (s *Store) removeVersions(deleted graspsync.Event) {
	addr, ok := deleted.Address()
	if !ok {
		return
	}
	s.tombs.AddVersion(addr, deleted.Key())
	if old := s.addresses[addr]; old != nil && s.tombs.Covers(old.event) {
		s.remove(old)
	}
}

// vanish removes the covered events of an author. The caller holds mu.
func (s *Store) vanish(author string) {
	for _, e := range slices.Clone(s.index[term{filters.ListAuthors, author}]) {
		if s.tombs.Covers(e.event) {
			s.remove(e)
		}
	}
	s.bury() // without the removed deletions
}

// bury rebuilds the tombstones from the stored deletions. The caller holds mu.
func (s *Store) bury() {
	s.tombs.ClearDeletions()
	for _, kind := range []int{graspsync.KindDeletion, graspsync.KindVanish} {
		for _, e := range s.index[kindTerm(kind)] {
			s.tombs.Add(e.event)
		}
	}
}

// The caller holds mu.
func (s *Store) insert(event graspsync.Event) {
	s.inserted++
	e := &entry{event, s.inserted}
	s.events[event.ID] = e
	if addr, ok := event.Address(); ok {
		s.addresses[addr] = e
	}
	s.index.add(e)
}

// The caller holds mu.
func (s *Store) remove(e *entry) {
	delete(s.events, e.event.ID)
	if addr, ok := e.event.Address(); ok && s.addresses[addr] == e {
		delete(s.addresses, addr)
	}
	s.index.remove(e)
}

// Remove implements [relaysync.Store]. It leaves no tombstone. A removed deletion no longer covers
// events.
func (s *Store) Remove(ctx context.Context, event graspsync.Event) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("removing an event: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.events[event.ID]
	if e == nil {
		return nil
	}
	s.remove(e)
	if e.event.Kind == graspsync.KindDeletion || e.event.Kind == graspsync.KindVanish {
		s.bury()
	}
	return nil
}

// Has implements [relaysync.Store].
func (s *Store) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("looking up ids: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	has := make([]bool, len(ids))
	for i, id := range ids {
		_, has[i] = s.events[id]
	}
	return has, nil
}

// Deleted implements [relaysync.Store].
func (s *Store) Deleted(ctx context.Context, event graspsync.Event) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("looking up deletions: %w", err)
	}
	if event.IsZero() {
		return false, nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tombs.Covers(event), nil
}

// Keys implements [relaysync.Store].
func (s *Store) Keys(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return read(ctx, s, filter, func(e graspsync.Event) graspsync.EventKey { return e.Key() })
}

// Events implements [relaysync.Store].
func (s *Store) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return read(ctx, s, filter, func(e graspsync.Event) graspsync.Event { return e })
}
