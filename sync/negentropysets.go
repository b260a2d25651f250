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
	"github.com/graspsync/graspsync/sync/internal/pending"
)

const (
	setAge   = 30 * time.Second // maximum age of a set
	setLoads = 4                // concurrent loads

	maxSetTime = 1 << 53 // created_at of events in a set, seconds
)

var errSetTooLarge = errors.New("more events than are reconciled at once")

// negentropySets loads our event keys for a filter. Many relays use the same filter at the same
// time, so a set is shared for 30 seconds. Events stored after the load are removed before a relay
// is asked for missing events.
type negentropySets struct {
	store     Store
	telemetry *telemetry // may be nil
	holder    Holder     // may be nil
	// rejected events count as stored. Otherwise each reconciliation would fetch them again.
	rejected *pending.RejectedIndex
	most     int
	places   chan struct{}

	mu sync.Mutex
	// guarded by mu
	loaded map[string]*setLoad // by the filter's JSON
	begun  []*setLoad          // oldest first, including failed ones
}

type setLoad struct {
	key  string
	done chan struct{}
	at   time.Time
	set  *negentropy.Set
	err  error
	left bool // the loading goroutine was canceled; the Store did not fail
}

// newNegentropySets returns an empty cache. Only store is required.
func newNegentropySets(store Store, holder Holder, most int, notHere *pending.RejectedIndex, r *telemetry) *negentropySets {
	return &negentropySets{
		store: store, holder: holder, rejected: notHere, telemetry: r, most: most,
		places: make(chan struct{}, setLoads), loaded: make(map[string]*setLoad),
	}
}

func (s *negentropySets) load(ctx context.Context, f nostr.Filter) (*negentropy.Set, error) {
	key := f.String()
	for {
		l, first := s.begin(key)
		if first {
			l.set, l.err = s.read(ctx, f)
			s.end(l, ctx.Err())
		}
		select {
		case <-l.done:
			if l.left && ctx.Err() == nil {
				continue
			}
			return l.set, l.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin returns the load of a filter. first means that the caller must perform the load.
func (s *negentropySets) begin(key string) (l *setLoad, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.dropOld(now)
	l, ok := s.loaded[key]
	if !ok {
		l = &setLoad{key: key, done: make(chan struct{}), at: now}
		s.loaded[key] = l
		s.begun = append(s.begun, l)
	}
	return l, !ok
}

func (s *negentropySets) forgetOld(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropOld(now)
}

// dropOld drops old sets. mu is held.
func (s *negentropySets) dropOld(now time.Time) {
	old := 0
	for old < len(s.begun) && now.Sub(s.begun[old].at) > setAge {
		if l := s.begun[old]; s.loaded[l.key] == l {
			delete(s.loaded, l.key)
		}
		s.begun[old] = nil
		old++
	}
	s.begun = s.begun[old:]
}

// end publishes the result of a load. ended is the error of the loader's context.
func (s *negentropySets) end(l *setLoad, ended error) {
	if l.err != nil {
		l.left = errors.Is(ended, context.Canceled)
		s.mu.Lock()
		if s.loaded[l.key] == l {
			delete(s.loaded, l.key)
		}
		s.mu.Unlock()
	}
	close(l.done)
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
