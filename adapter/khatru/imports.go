package khatruadapter

import (
	"context"
	"errors"
	"sync"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Sentinels of the outcomes of synced events.
var (
	// ErrRejected is wrapped by the reason of an event that a RejectEvent hook of
	// the relay refused.
	ErrRejected = errors.New("rejected by the relay")
	// ErrHook is wrapped where a hook of the relay panicked.
	ErrHook = errors.New("hook of the relay failed")
)

// imports is the Store that synced events go into: what the relay would do with an
// event that a client publishes, without the client.
type imports struct {
	*eventstoreadapter.Store
	sync *Sync
}

var _ relaysync.Store = (*imports)(nil)

// Remove implements [relaysync.Store]: the DeleteEvent hooks are told.
func (s *imports) Remove(ctx context.Context, e graspsync.Event) error {
	if err := s.Store.Remove(ctx, e); err != nil {
		return err
	}
	s.sync.removed.add(e)
	s.sync.followRemovals(synced(ctx))
	return nil
}

// Save implements [relaysync.Store].
func (s *imports) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	ctx = synced(ctx)
	outcomes := make([]graspsync.Outcome, len(events))
	passed := make([]graspsync.Incoming, 0, len(events))
	places := make([]int, 0, len(events))
	for i, in := range events {
		if outcomes[i] = s.sync.acceptable(ctx, in); outcomes[i].Result == 0 {
			passed, places = append(passed, in), append(places, i)
		}
	}
	saved, err := s.sync.save(ctx, s.Store, passed)
	if err != nil {
		return nil, err
	}
	for i, o := range saved {
		outcomes[places[i]] = o
	}
	return outcomes, nil
}

// maxUnsure is how many ids of events are remembered whose saving failed.
const maxUnsure = 10_000

// unsure remembers events that may be stored although that failed, the latest of them.
type unsure struct {
	mu sync.Mutex
	// guarded by mu
	ids   map[graspsync.EventID]int // places in order
	order []graspsync.EventID       // a ring
	next  int                       // place in it
}

func (u *unsure) add(events ...graspsync.Incoming) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, in := range events {
		if in.Event.IsZero() {
			continue
		}
		id := in.Event.ID
		if _, known := u.ids[id]; known {
			continue
		}
		if u.ids == nil {
			u.ids = make(map[graspsync.EventID]int)
		}
		if len(u.order) < maxUnsure {
			u.ids[id] = len(u.order)
			u.order = append(u.order, id)
			continue
		}
		if old := u.order[u.next]; u.ids[old] == u.next {
			delete(u.ids, old)
		}
		u.ids[id], u.order[u.next] = u.next, id
		u.next = (u.next + 1) % maxUnsure
	}
}

// take forgets an id and reports whether it was remembered.
func (u *unsure) take(id graspsync.EventID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.ids[id]
	delete(u.ids, id)
	return known
}
