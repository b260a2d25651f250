package nostrlib

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	goeventstore "github.com/fiatjaf/eventstore"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config is the configuration of a [Store]. NoSync has no effect.
type Config = eventstoreadapter.Config

// Store is a [relaysync.Store] on a backend of nostrlib. Use [NewStore]. It is safe for concurrent
// use.
type Store struct{ *eventstoreadapter.Store }

var _ relaysync.Store = (*Store)(nil)

// NewStore returns a Store on a backend. The caller has called Init of db and closes it. The error
// wraps [eventstoreadapter.ErrUnsupported] unless db is or embeds boltdb, lmdb or slicestore.
func NewStore(db eventstore.Store, cfg Config) (*Store, error) {
	if v := reflect.ValueOf(db); db == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("event store: no backend")
	}
	known, err := traitsOf(db)
	if err != nil {
		return nil, fmt.Errorf("event store: %w", err)
	}
	s, err := eventstoreadapter.New(backend{Store: db, traits: known}, cfg)
	if err != nil {
		return nil, err
	}
	return &Store{s}, nil
}

// Query returns the newest events that match a client's filter: at most the limit of the filter,
// most, PageSize and 8 MiB.
func (s *Store) Query(ctx context.Context, f nostr.Filter, most int) ([]nostr.Event, error) {
	if f.LimitZero {
		return nil, ctx.Err()
	}
	if most = min(most, s.PageSize()); f.Limit <= 0 || f.Limit > most {
		f.Limit = most
	}
	ch, err := s.Store.Query(ctx, FromFilter(f))
	if err != nil {
		return nil, err
	}
	events := make([]nostr.Event, 0, len(ch))
	for e := range ch {
		if out, err := toTheirs(e); err == nil { // cannot fail: nostrlib stored the event
			events = append(events, out)
		}
	}
	return events, nil
}

// Reconciled returns the keys of all events that match a filter without its limit, for NIP-77.
func (s *Store) Reconciled(ctx context.Context, f nostr.Filter) (keys []graspsync.EventKey, err error) {
	f.LimitZero = false
	ch, err := s.Store.Query(goeventstore.SetNegentropy(ctx), FromFilter(f))
	if err != nil {
		return nil, err
	}
	for e := range ch {
		id, _ := graspsync.ParseEventID(e.ID) // the store has valid ids only
		keys = append(keys, graspsync.EventKey{CreatedAt: e.CreatedAt, ID: id})
	}
	return keys, ctx.Err()
}
