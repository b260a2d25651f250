package khatruadapter

import (
	"context"
	"errors"

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
	s.sync.removed.Add(e)
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
