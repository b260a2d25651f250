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
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config is the configuration of a [Store].
type Config struct {
	// Identity is the service that stores the events. The Store executes requests to vanish
	// (NIP-62) for Identity and for all relays, and without Identity only those for all relays.
	Identity nip34.Identity
	// Removed, if set, is called with each event that a deletion, a request to vanish or a newer
	// version removed. Locks are held during the call, so it must return quickly and must not call
	// the Store.
	Removed func(event graspsync.Event)
}

// Store is a [relaysync.Store] on a backend of nostrlib. Use [NewStore]. It is safe for concurrent
// use, because calls of a backend that is not safe are serialized.
type Store struct {
	*eventstoreadapter.Store
	shared interface {
		goeventstore.Store
		goeventstore.Counter
	}
}

var _ relaysync.Store = (*Store)(nil)

// NewStore returns a Store on a backend. The caller has called Init of db and closes it. The error
// wraps [eventstoreadapter.ErrUnsupported] unless db is boltdb, lmdb, slicestore, or a struct that
// embeds one.
func NewStore(db eventstore.Store, cfg Config) (*Store, error) {
	if v := reflect.ValueOf(db); db == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("event store: no backend")
	}
	known, err := traitsOf(db)
	if err != nil {
		return nil, fmt.Errorf("event store: %w", err)
	}
	s, err := eventstoreadapter.New(backend{Store: db, traits: known}, eventstoreadapter.Config{Identity: cfg.Identity, Removed: cfg.Removed})
	if err != nil {
		return nil, err
	}
	return &Store{Store: s, shared: s.Backend()}, nil
}

// Query returns the newest events that match a client's filter: at most the limit of the filter,
// most, PageSize and 8 MiB. A filter without limit gets that maximum. If the index does not find
// all matches, Query searches only the newest tens of thousands of events. It returns errors of the
// backend, unlike the backend's own QueryEvents.
func (s *Store) Query(ctx context.Context, f nostr.Filter, most int) ([]nostr.Event, error) {
	if f.LimitZero {
		return nil, ctx.Err()
	}
	if most = min(most, s.PageSize()); f.Limit <= 0 || f.Limit > most {
		f.Limit = most
	}
	ch, err := s.shared.QueryEvents(ctx, FromFilter(f))
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

// Reconciled returns time and id of every event that matches a filter, for a reconciliation
// (NIP-77). It ignores the limit. It returns nothing for a search, because backends cannot search.
func (s *Store) Reconciled(ctx context.Context, f nostr.Filter) ([]graspsync.EventKey, error) {
	if f.Search != "" {
		return nil, ctx.Err()
	}
	f.Limit, f.LimitZero = 0, false
	var all []graspsync.EventKey
	for stamp, err := range s.Keys(ctx, FromFilter(f)) {
		if err != nil {
			return nil, err
		}
		all = append(all, stamp)
	}
	return all, nil
}

// Count returns CountEvents of the backend, which can count events that do not match exactly.
func (s *Store) Count(ctx context.Context, f nostr.Filter) (uint32, error) {
	n, err := s.shared.CountEvents(ctx, FromFilter(f))
	return uint32(max(n, 0)), err
}

// Add stores an event that a client submitted, like Save. It refuses ephemeral events, keeps the
// newest version of replaceable events, and executes deletions.
func (s *Store) Add(ctx context.Context, e nostr.Event) (graspsync.Outcome, error) {
	parsed, err := FromEvent(e)
	if err != nil {
		return graspsync.Outcome{Result: graspsync.Refused, Err: err}, nil //nolint:nilerr // it is in the outcome
	}
	outcomes, err := s.Save(ctx, []graspsync.Incoming{{Event: parsed}})
	if err != nil {
		return graspsync.Outcome{}, err
	}
	if len(outcomes) != 1 {
		return graspsync.Outcome{}, fmt.Errorf("%d outcomes of one event", len(outcomes))
	}
	return outcomes[0], nil
}
