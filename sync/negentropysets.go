package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/pending"
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
	store     Store
	telemetry *telemetry // may be nil
	holder    Holder     // may be nil
	// rejected events count as stored. Otherwise each reconciliation would fetch them again.
	rejected *pending.RejectedIndex
	most     int
	places   chan struct{}

	mu     sync.Mutex
	loaded map[string]setLoad // by the filter's JSON; guarded by mu
}

type setLoad struct {
	at  time.Time
	get func() (*negentropy.Set, error) // loads the set at the first call
}

// newNegentropySets returns an empty cache.
func newNegentropySets(store Store, holder Holder, most int, notHere *pending.RejectedIndex, r *telemetry) *negentropySets {
	return &negentropySets{
		store: store, holder: holder, rejected: notHere, telemetry: r, most: most,
		places: make(chan struct{}, setLoads), loaded: make(map[string]setLoad),
	}
}

func (s *negentropySets) load(ctx context.Context, f nostr.Filter) (*negentropy.Set, error) {
	for {
		set, err := s.begin(ctx, f)()
		if !errors.Is(err, context.Canceled) || ctx.Err() != nil { // otherwise the caller that loaded it has left
			return set, err
		}
	}
}

// begin returns the load of a filter, and starts a new load if there is none.
func (s *negentropySets) begin(ctx context.Context, f nostr.Filter) func() (*negentropy.Set, error) {
	key, now := f.String(), time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.loaded[key]; ok && now.Sub(l.at) <= setAge {
		return l.get
	}
	get := sync.OnceValues(func() (*negentropy.Set, error) {
		set, err := s.read(ctx, f)
		if err != nil {
			s.forget(func(other string, l setLoad) bool { return other == key && l.at.Equal(now) })
		}
		return set, err
	})
	s.loaded[key] = setLoad{now, get}
	return get
}

func (s *negentropySets) forgetOld(now time.Time) {
	s.forget(func(_ string, l setLoad) bool { return now.Sub(l.at) > setAge })
}

func (s *negentropySets) forget(is func(key string, l setLoad) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.loaded, is)
}

func (s *negentropySets) read(ctx context.Context, f nostr.Filter) (set *negentropy.Set, err error) {
	defer s.telemetry.recovered(&err, "store")
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// Read held events before stored ones, because an event that is released in between must be
	// found at least once.
	var held []graspsync.EventKey
	if s.holder != nil {
		if held, err = s.held(ctx, f); err != nil {
			return nil, fmt.Errorf("reading held events: %w", err)
		}
	}
	var items []negentropy.Item
	add := func(st graspsync.EventKey) error {
		if len(items) >= s.most {
			return errSetTooLarge
		}
		if st.CreatedAt < 0 || st.CreatedAt > maxSetTime {
			return nil // some peers crash on such times
		}
		items = append(items, negentropy.Item{CreatedAt: uint64(st.CreatedAt), ID: st.ID})
		return nil
	}
	for st, err := range s.store.Keys(ctx, f) {
		if err == nil {
			err = add(st)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the store: %w", err)
		}
	}
	for _, st := range held {
		if err := add(st); err != nil {
			return nil, err
		}
	}
	if s.rejected != nil {
		for _, st := range s.rejected.EventKeys(f) {
			if err := add(st); err != nil {
				return nil, err
			}
		}
	}
	return negentropy.NewSet(items), nil
}

func (s *negentropySets) held(ctx context.Context, f nostr.Filter) (held []graspsync.EventKey, err error) {
	defer s.telemetry.recovered(&err, "policy")
	return s.holder.Held(ctx, f)
}
