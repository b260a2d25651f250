package nostrlib

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	goeventstore "github.com/fiatjaf/eventstore"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config says how a backend is used. The zero Config is right for boltdb, lmdb, mmm and slicestore.
type Config struct {
	// PageSize is the most events asked for in one query. With a value above what a
	// backend really answers to one query, whatever it is asked for, answers would be cut short
	// unseen. Defaults to 1,000 for boltdb, lmdb, mmm and slicestore, and to 100 for others.
	PageSize int
	// Serialize has at most one call to the backend run at a time, for backends that
	// can't be used concurrently. Always on for slicestore and mmm.
	Serialize bool
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
	exclusive bool // it may take since for exclusive
	shared    interface {
		goeventstore.Store
		goeventstore.Counter
	}
}

var _ relaysync.Store = (*Store)(nil)

// NewStore returns a Store over a backend, on which Init was called. The backend is the embedder's:
// its Close is not called. The error names every bad field of the Config.
func NewStore(db eventstore.Store, cfg Config) (*Store, error) {
	if v := reflect.ValueOf(db); db == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("event store: no backend")
	}
	known := traitsOf(db)
	s, err := eventstoreadapter.New(backend{Store: db, traits: known}, eventstoreadapter.Config{
		PageSize: cfg.PageSize, Serialize: cfg.Serialize, Identity: cfg.Identity, Removed: cfg.Removed,
	})
	if err != nil {
		return nil, err
	}
	return &Store{Store: s, exclusive: known.Exclusive, shared: s.Backend()}, nil
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
	asked := f
	if s.exclusive && f.Since > 0 {
		asked.Since--
	}
	events, err := s.query(ctx, asked)
	return slices.DeleteFunc(events, func(e nostr.Event) bool { return !f.Matches(e) }), err
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

func (s *Store) query(ctx context.Context, f nostr.Filter) ([]nostr.Event, error) {
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
