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

// Config says how a backend is used.
type Config struct {
	// Identity is the service whose events these are. Requests to vanish (NIP-62) are
	// executed if they name it; with none, only those that name all relays are.
	Identity nip34.Identity
	// Removed, if set, is told each event that a deletion, a request to vanish or a newer
	// version has taken out of the backend. It is called under locks: it must not call the
	// Store and should only take note.
	Removed func(event graspsync.Event)
}

// Store is a [relaysync.Store] over a backend of nostrlib's. Use [NewStore]. It is safe for
// concurrent use if the backend is, or is serialised.
type Store struct {
	*eventstoreadapter.Store
	shared interface {
		goeventstore.Store
		goeventstore.Counter
	}
}

var _ relaysync.Store = (*Store)(nil)

// NewStore returns a Store over a backend, on which Init was called. The backend is the embedder's:
// its Close is not called. The error wraps [eventstoreadapter.ErrUnsupported] for one other than boltdb, lmdb and slicestore, or a
// struct that embeds one of these.
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

// Query returns what a client gets for a filter: the newest events that match, as many as its limit
// says, and most at most, nor more than PageSize; also that many where it says none. What does not match is left
// out. What no index finds, and what stands behind a page of events that only look alike, is looked for in the newest
// tens of thousands of events. An answer has the newest 8 MiB of what it would have. An error is one of the backend, which
// by itself gives no answer then.
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
		if out, err := toTheirs(e); err == nil { // it came from there
			events = append(events, out)
		}
	}
	return events, nil
}

// Reconciled returns what a reconciliation (NIP-77) is about: times and ids of all that matches,
// whatever the limit of the filter, or an error. Of a search there is nothing: backends have none.
func (s *Store) Reconciled(ctx context.Context, f nostr.Filter) ([]graspsync.Stamp, error) {
	if f.Search != "" {
		return nil, ctx.Err()
	}
	f.Limit, f.LimitZero = 0, false
	var all []graspsync.Stamp
	for stamp, err := range s.Stamps(ctx, FromFilter(f)) {
		if err != nil {
			return nil, err
		}
		all = append(all, stamp)
	}
	return all, nil
}

// Count is CountEvents of the backend, with its errors. Backends may count what only looks alike.
func (s *Store) Count(ctx context.Context, f nostr.Filter) (uint32, error) {
	n, err := s.shared.CountEvents(ctx, FromFilter(f))
	return uint32(max(n, 0)), err
}

// Add stores one event as Save does, for a relay whose client submits it: an ephemeral one is
// refused, of a replaceable one the newest version stays, and deletions are executed.
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
