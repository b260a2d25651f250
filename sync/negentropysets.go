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
	setAge   = 30 * time.Second // how long a loaded set may be used
	setLoads = 4                // sets loaded at once

	maxSetTime = 1 << 53 // created_at of events in a set, seconds
)

var errSetTooLarge = errors.New("more events than are reconciled at once")

// sets loads what we have for a filter. Many relays are asked for the same filter
// at the same time, so a loaded set is shared for a while; what it lacks by then is
// found out before anything is fetched.
type negentropySets struct {
	store    Store
	counters *counters // nil: panics are contained but not counted
	holder   Holder    // nil if nothing is held
	// rejected is what is known and not here; it counts as ours, or relays would be
	// asked for it again at each reconciliation.
	rejected *pending.RejectedIndex
	most     int
	places   chan struct{}

	mu sync.Mutex
	// guarded by mu
	loaded map[string]*setLoad // by the filter's JSON
	begun  []*setLoad          // the oldest first; some have failed, and are loaded no more
}

type setLoad struct {
	key  string
	done chan struct{}
	at   time.Time
	set  *negentropy.Set
	err  error
	left bool // who loaded it did not wait for the end: that says nothing of the Store
}

// newSets returns one that has loaded nothing. All but the Store may be nil.
func newNegentropySets(store Store, holder Holder, most int, notHere *pending.RejectedIndex, c *counters) *negentropySets {
	return &negentropySets{
		store: store, holder: holder, rejected: notHere, counters: c, most: most,
		places: make(chan struct{}, setLoads), loaded: make(map[string]*setLoad),
	}
}

// load returns the set of a filter.
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

// begin returns what is loaded, or is being loaded, for a filter; first means that it
// is for the caller to do so.
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

// forgetOld drops the sets that are not to be used any more: after a pass nothing else
// may be loaded for a day.
func (s *negentropySets) forgetOld(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropOld(now)
}

// dropOld needs mu. It looks at nothing but what is old, since each set that is begun asks for it.
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

// end has everybody who waits for it take what was loaded. ended is what has become
// of the context of who did.
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
	defer s.counters.recovered(&err, "store")
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// First what is held, and then what is stored: an event that is released meanwhile is in
	// both. The other way round it would be in neither, and fetched again.
	var held []graspsync.Stamp
	if s.holder != nil {
		if held, err = s.held(ctx, f); err != nil {
			return nil, fmt.Errorf("reading what is held: %w", err)
		}
	}
	var items []negentropy.Item
	add := func(st graspsync.Stamp) error {
		if len(items) >= s.most {
			return errSetTooLarge
		}
		if st.CreatedAt < 0 || st.CreatedAt > maxSetTime {
			return nil // some peers crash on such times; what is left out is known all the same
		}
		items = append(items, negentropy.Item{CreatedAt: uint64(st.CreatedAt), ID: st.ID})
		return nil
	}
	for st, err := range s.store.Stamps(ctx, f) {
		if err == nil {
			err = add(st)
		}
		if err != nil {
			return nil, fmt.Errorf("reading what is stored: %w", err)
		}
	}
	for _, st := range held {
		if err := add(st); err != nil {
			return nil, err
		}
	}
	if s.rejected != nil {
		for _, st := range s.rejected.Stamps(f) {
			if err := add(st); err != nil {
				return nil, err
			}
		}
	}
	return negentropy.NewSet(items), nil
}

// held is what is held for the Policy; a panic in it is the Policy's, and not the Store's.
func (s *negentropySets) held(ctx context.Context, f nostr.Filter) (held []graspsync.Stamp, err error) {
	defer s.counters.recovered(&err, "policy")
	return s.holder.Held(ctx, f)
}
