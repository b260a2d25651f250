package sync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
)

const (
	setAge   = 30 * time.Second // maximum age of a set
	setLoads = 4                // concurrent loads

	maxSetTime = 1 << 53 // created_at of events in a set, seconds
)

var errSetTooLarge = errors.New("more events than are reconciled at once")

// negentropySets loads our event keys for a filter. Many relays use the same filter at the same
// time, so a set is shared for 30 seconds.
type negentropySets struct {
	m      *SyncManager
	places chan struct{}

	mu     sync.Mutex
	loaded map[string]func() (*negentropy.Set, error) // load at the first call; by the filter's JSON; guarded by mu
}

func (s *negentropySets) load(ctx context.Context, f nostr.Filter) (*negentropy.Set, error) {
	for {
		set, err := s.loader(ctx, f)()
		if !errors.Is(err, context.Canceled) || ctx.Err() != nil { // otherwise the caller that loaded it has left
			return set, err
		}
	}
}

// loader returns a function whose first call loads the set of a filter.
func (s *negentropySets) loader(ctx context.Context, f nostr.Filter) func() (*negentropy.Set, error) {
	key := f.String()
	s.mu.Lock()
	defer s.mu.Unlock()
	if get := s.loaded[key]; get != nil {
		return get
	}
	expiry := time.AfterFunc(setAge, func() { s.forget(key) })
	get := sync.OnceValues(func() (*negentropy.Set, error) {
		set, err := s.read(ctx, f)
		if err != nil && expiry.Stop() {
			s.forget(key)
		}
		return set, err
	})
	s.loaded[key] = get
	return get
}

func (s *negentropySets) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.loaded, key)
}

func (s *negentropySets) read(ctx context.Context, f nostr.Filter) (set *negentropy.Set, err error) {
	defer s.m.telemetry.recovered(&err, whoseStore)
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// Read held events before stored ones, because an event that is released in between must be
	// found at least once.
	var held []graspsync.EventKey
	if s.m.cfg.Holder != nil {
		if held, err = s.held(ctx, f); err != nil {
			return nil, fmt.Errorf("reading held events: %w", err)
		}
	}
	var items []negentropy.Item
	add := func(st graspsync.EventKey) error {
		if len(items) >= maxSet {
			return errSetTooLarge
		}
		if st.CreatedAt < 0 || st.CreatedAt > maxSetTime {
			return nil // some peers crash on such times
		}
		items = append(items, negentropy.Item{CreatedAt: uint64(st.CreatedAt), ID: st.ID})
		return nil
	}
	for st, err := range s.m.store.Keys(ctx, f) {
		if err == nil {
			err = add(st)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the store: %w", err)
		}
	}
	// Rejected events count as stored. Otherwise each reconciliation would fetch them again.
	for _, st := range append(held, s.m.ingest.rejected.EventKeys(f)...) {
		if err := add(st); err != nil {
			return nil, err
		}
	}
	return negentropy.NewSet(items), nil
}

func (s *negentropySets) held(ctx context.Context, f nostr.Filter) (held []graspsync.EventKey, err error) {
	defer s.m.telemetry.recovered(&err, "policy")
	return s.m.cfg.Holder.Held(ctx, f)
}
