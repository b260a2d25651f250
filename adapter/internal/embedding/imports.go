package embedding

import (
	"context"
	"fmt"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Imports is the Store of synced events.
type Imports struct {
	*eventstoreadapter.Store
	env *Core
}

var _ relaysync.Store = (*Imports)(nil)

// Remove implements [relaysync.Store].
func (s *Imports) Remove(ctx context.Context, e graspsync.Event) error {
	if err := s.Store.Remove(ctx, e); err != nil {
		return err
	}
	s.env.AddRemoved(e)
	s.env.FollowRemovals(synced(ctx))
	return nil
}

// Save implements [relaysync.Store].
func (s *Imports) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	ctx = synced(ctx)
	outcomes := make([]graspsync.Outcome, len(events))
	passed := make([]graspsync.Incoming, 0, len(events))
	places := make([]int, 0, len(events))
	for i, in := range events {
		if outcomes[i] = s.acceptable(ctx, in); outcomes[i].Result == 0 {
			passed, places = append(passed, in), append(places, i)
		}
	}
	saved, err := s.save(ctx, passed)
	if err != nil {
		return nil, err
	}
	for i, o := range saved {
		outcomes[places[i]] = o
	}
	return outcomes, nil
}

// Release is described at [Sync.Release].
func (s *Imports) Release(ctx context.Context, e graspsync.Event) (graspsync.Outcome, error) {
	m := s.env.Manager
	in := graspsync.Incoming{Event: e, Source: m.HeldFrom(e.ID)}
	ctx = synced(ctx)
	if o := s.env.admit(ctx, in); o.Result != 0 {
		return o, nil
	}
	if full := s.env.Room.Of(e.Event); full != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: full}, nil //nolint:nilerr // the outcome contains the error
	}
	outcomes, err := s.save(ctx, []graspsync.Incoming{in})
	if err != nil {
		return graspsync.Outcome{}, err
	}
	if r := outcomes[0].Result; r == graspsync.Stored || r == graspsync.Duplicate {
		m.NotifyStored(e)
	}
	return outcomes[0], nil
}

func (s *Imports) save(ctx context.Context, events []graspsync.Incoming) (outcomes []graspsync.Outcome, err error) {
	removed := s.env.countRemoved()
	defer s.env.FollowRemovals(ctx) // after the hooks for stored events, one of which a later one may have replaced
	outcomes, err = s.Store.Save(ctx, events)
	if err != nil {
		s.env.addUnsure(events...)
		return nil, err
	}
	if len(outcomes) != len(events) {
		return nil, fmt.Errorf("%d outcomes of %d events", len(outcomes), len(events))
	}
	for i, in := range events {
		o := &outcomes[i]
		if in.Event.IsZero() {
			continue
		}
		if o.Result == graspsync.Failed {
			s.env.addUnsure(in)
			continue
		}
		if tried := s.env.takeUnsure(in.Event.ID); tried && o.Result == graspsync.Duplicate {
			o.Result = graspsync.Stored // the failed attempt stored it and called no hooks
		}
		switch o.Result {
		case graspsync.Stored:
			s.env.Hooks.Stored(ctx, in.Event)
			tell(s.env.Stored, in.Event)
			s.env.Broadcast(in.Event)
			_ = s.env.Upkeep.Track(in.Event)
			if s.env.countRemoved() != removed { // a concurrent deletion may have removed this event before all hooks stored it
				s.env.Upkeep.Undo(ctx, in.Event)
			}
		case graspsync.Duplicate:
			_ = s.env.Upkeep.Track(in.Event) // an earlier process may have ended before Track
		}
	}
	return outcomes, nil
}

func (s *Imports) acceptable(ctx context.Context, in graspsync.Incoming) (outcome graspsync.Outcome) {
	if in.Event.IsZero() {
		return outcome // the store refuses it
	}
	if !s.env.holds() { // else hooked.Judge called admit
		if outcome = s.env.admit(ctx, in); outcome.Result != 0 {
			return outcome
		}
	}
	if err := s.env.Room.Of(in.Event.Event); err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: err}
	}
	msg, err := s.env.Undeletable(ctx, in.Event)
	switch {
	case err != nil:
		return graspsync.Outcome{Result: graspsync.Failed, Err: err}
	case msg != "":
		return graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
	}
	return outcome
}
