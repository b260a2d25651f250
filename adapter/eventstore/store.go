package eventstoreadapter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

// stripes is the number of locks that all authors share.
const stripes = 64

// Store is a [relaysync.Store] over a backend. Use [New]. It is safe for
// concurrent use if the backend is, or is serialised.
type Store struct {
	// set by New, read-only
	cfg    Config
	writer *guard
	reader *guard

	authors [stripes]sync.Mutex // guards what is stored of the authors of a stripe
	// removing is held for each removal: badger's counts them in a variable without
	// a lock.
	removing sync.Mutex
}

var _ relaysync.Store = (*Store)(nil)

// New returns a Store over a backend, on which Init was called. The backend is the
// embedder's: Close is not called. The error names every bad field of the Config.
func New(backend eventstore.Store, cfg Config) (*Store, error) {
	if backend == nil {
		return nil, errors.New("event store: no backend")
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("event store: %w", err)
	}
	cfg = cfg.withDefaults(backend)
	read, write := profileOf(cfg.Reader).with(cfg), profileOf(backend).with(cfg)
	var turn chan struct{}
	if read.serialize || write.serialize {
		turn = make(chan struct{}, 1)
	}
	return &Store{
		cfg:    cfg,
		writer: newGuard(backend, write, turn),
		reader: newGuard(cfg.Reader, read, turn),
	}, nil
}

// PageSize is how many events one query of the backend gives at most, as far as it is known:
// what clients ask for beyond that they don't get.
func (s *Store) PageSize() int { return s.reader.profile.page }

// Stamps implements [relaysync.Store]. Backends give whole events, so it costs as
// much as Events.
func (s *Store) Stamps(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Stamp, error] {
	return func(yield func(graspsync.Stamp, error) bool) {
		err := s.walk(ctx, filter, func(id graspsync.EventID, e *nostr.Event) bool {
			return yield(graspsync.Stamp{CreatedAt: e.CreatedAt, ID: id}, nil)
		})
		if err != nil {
			yield(graspsync.Stamp{}, fmt.Errorf("reading stamps: %w", err))
		}
	}
}

// Events implements [relaysync.Store].
func (s *Store) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[*nostr.Event, error] {
	return func(yield func(*nostr.Event, error) bool) {
		err := s.walk(ctx, filter, func(_ graspsync.EventID, e *nostr.Event) bool { return yield(e, nil) })
		if err != nil {
			yield(nil, fmt.Errorf("reading events: %w", err))
		}
	}
}

// walk calls yield for every event that matches, until it returns false.
func (s *Store) walk(
	ctx context.Context, f nostr.Filter, yield func(graspsync.EventID, *nostr.Event) bool,
) error {
	w := &walk{
		guard: s.reader, batch: s.cfg.fixed.BatchSize,
		seen: make(map[graspsync.EventID]struct{}), yield: yield,
	}
	err := ctx.Err()
	if err == nil {
		err = w.run(ctx, f)
	}
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// all returns every event that matches.
func (s *Store) all(ctx context.Context, f nostr.Filter) ([]*nostr.Event, error) {
	var events []*nostr.Event
	err := s.walk(ctx, f, func(_ graspsync.EventID, e *nostr.Event) bool {
		events = append(events, e)
		return true
	})
	return events, err
}

// Has implements [relaysync.Store].
func (s *Store) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	has := make([]bool, len(ids))
	if len(ids) == 0 {
		return has, ctx.Err()
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	found := make(map[graspsync.EventID]struct{}, len(ids))
	err := s.walk(ctx, nostr.Filter{IDs: texts}, func(id graspsync.EventID, _ *nostr.Event) bool {
		found[id] = struct{}{}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("looking up ids: %w", err)
	}
	for i, id := range ids {
		_, has[i] = found[id]
	}
	return has, nil
}

// Deleted implements [relaysync.Store].
func (s *Store) Deleted(ctx context.Context, event *nostr.Event) (bool, error) {
	if event == nil {
		return false, ctx.Err()
	}
	t, err := s.tombstonesOf(ctx, []*nostr.Event{event})
	if err != nil {
		return false, fmt.Errorf("looking up deletions: %w", err)
	}
	return t.Cover(event), nil
}
