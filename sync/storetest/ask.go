package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
)

// subject is a Store under test with the model of its content.
type subject struct {
	relaysync.Store
	*gen
	model
	ctx           context.Context
	removes, says bool // the Store has removed an event, or returned ErrCannotRemove
}

func newSubject(ctx context.Context, store relaysync.Store) *subject {
	return &subject{Store: store, gen: newGen(1), ctx: ctx}
}

// save saves one batch and checks the outcome of each event.
func (s *subject) save(events ...*nostr.Event) error {
	got, err := s.submit(events)
	for i, o := range got {
		e := events[i]
		if want := s.model.save(e); o.Result != want {
			return fmt.Errorf("Save of %s: %s (%v), want %s. Saved so far:%s", describe(e), o.Result, o.Err, want, s.history(e))
		} else if (want == graspsync.Refused) != (o.Err != nil) {
			return fmt.Errorf("Save of %s: %s with error %v", describe(e), o.Result, o.Err)
		}
	}
	return err
}

// submit saves one batch.
func (s *subject) submit(events []*nostr.Event) ([]graspsync.Outcome, error) {
	got, err := s.Save(s.ctx, incoming(events...))
	if err != nil || len(got) != len(events) {
		return nil, fmt.Errorf("Save of %d events: %d outcomes, %v", len(events), len(got), err)
	}
	return got, nil
}

// fill saves new events in large batches.
func (s *subject) fill(events []*nostr.Event) error {
	for batch := range slices.Chunk(events, 500) {
		if err := s.save(batch...); err != nil {
			return err
		}
	}
	return nil
}

// remove removes an event. A Store that cannot remove must keep every event.
func (s *subject) remove(e *nostr.Event) error {
	switch err := s.Remove(s.ctx, eventtest.Of(e)); {
	case errors.Is(err, relaysync.ErrCannotRemove):
		s.says = true
	case err != nil:
		return fmt.Errorf("Remove of %s: %w", describe(e), err)
	default:
		s.removes = true
		s.model.remove(e)
	}
	if s.removes && s.says {
		return fmt.Errorf("Remove of %s: ErrCannotRemove for some events and not for others", describe(e))
	}
	return nil
}

// holds checks that the Store contains of all saved events, and of others, exactly the events of
// the model, and that Deleted agrees with their deletions.
func (s *subject) holds(others ...*nostr.Event) error {
	all := append(others, s.seen...)
	var ids []graspsync.EventID
	var f nostr.Filter
	for _, e := range all {
		ids, f.IDs = append(ids, idOf(e)), append(f.IDs, e.ID)
	}
	has, err := s.Has(s.ctx, ids)
	if err != nil || len(has) != len(ids) {
		return fmt.Errorf("Has of %d ids: %d answers, %v", len(ids), len(has), err)
	}
	for i, e := range all {
		if want := slices.ContainsFunc(s.stored, sameID(e)); has[i] != want {
			return fmt.Errorf("Has of %s: %t, want %t. Saved so far:%s", describe(e), has[i], want, s.history(e))
		}
		if !s.removes && s.deletes(e) && !s.covers(e) {
			continue // a Store of another process does not know the deleted versions
		}
		if err := s.deleted(e, s.deletes(e)); err != nil {
			return fmt.Errorf("%w. Saved so far:%s", err, s.history(e))
		}
	}
	return s.finds(f, s.stored)
}

func (s *subject) deleted(e *nostr.Event, want bool) error {
	got, err := s.Deleted(s.ctx, eventtest.Of(e))
	if err != nil || got != want {
		return fmt.Errorf("Deleted of %s: %t, %v, want %t", describe(e), got, err, want)
	}
	return nil
}

// finds checks that Keys and Events return exactly want for a filter.
func (s *subject) finds(f nostr.Filter, want []*nostr.Event) error {
	wanted := make(map[graspsync.EventID]*nostr.Event, len(want))
	for _, e := range want {
		wanted[idOf(e)] = e
	}
	for name, read := range map[string]func(nostr.Filter) ([]graspsync.EventKey, error){"Keys": s.keysOf, "Events": s.eventsOf} {
		keys, err := read(f)
		if err == nil {
			err = compare(keys, wanted)
		}
		if err != nil {
			return fmt.Errorf("%s of %.200s: %w", name, f, err)
		}
	}
	return nil
}

func (s *subject) keysOf(f nostr.Filter) ([]graspsync.EventKey, error) {
	return collected(s.Keys(s.ctx, f), func(key graspsync.EventKey) (graspsync.EventKey, error) { return key, nil })
}

// eventsOf returns the keys of the events that Events returns.
func (s *subject) eventsOf(f nostr.Filter) ([]graspsync.EventKey, error) {
	return collected(s.Events(s.ctx, f), func(e graspsync.Event) (graspsync.EventKey, error) {
		if parsed, err := graspsync.ParseEvent(e.Event); err != nil || parsed != e {
			return graspsync.EventKey{}, fmt.Errorf("event %s differs from its parsed form", e.ID)
		}
		return e.Key(), nil
	})
}

// collected returns the keys of a sequence, whose last pair may be an error.
func collected[T any](all iter.Seq2[T, error], keyOf func(T) (graspsync.EventKey, error)) (keys []graspsync.EventKey, failure error) {
	for v, err := range all {
		if failure != nil {
			return nil, errors.New("a pair follows an error")
		}
		if failure = err; err != nil {
			continue
		}
		key, err := keyOf(v)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, failure
}

func compare(got []graspsync.EventKey, wanted map[graspsync.EventID]*nostr.Event) error {
	seen := make(map[graspsync.EventID]bool, len(got))
	for _, key := range got {
		e := wanted[key.ID]
		switch {
		case e == nil:
			return fmt.Errorf("%s is not wanted", key.ID)
		case seen[key.ID]:
			return fmt.Errorf("%s is returned twice", describe(e))
		case key.CreatedAt != e.CreatedAt:
			return fmt.Errorf("%s has the time %d", describe(e), key.CreatedAt)
		}
		seen[key.ID] = true
	}
	if len(seen) < len(wanted) {
		return fmt.Errorf("%d of %d are missing", len(wanted)-len(seen), len(wanted))
	}
	return nil
}

// answers fills the Store and checks that each filter finds the matching events.
func (s *subject) answers(events []*nostr.Event, filters ...nostr.Filter) error {
	if err := s.fill(events); err != nil {
		return err
	}
	for _, f := range filters {
		matching := slices.DeleteFunc(slices.Clone(events), func(e *nostr.Event) bool { return !f.Matches(e) })
		if err := s.finds(f, matching); err != nil {
			return err
		}
	}
	return nil
}

func sameID(e *nostr.Event) func(*nostr.Event) bool {
	return func(o *nostr.Event) bool { return o.ID == e.ID }
}

func idOf(e *nostr.Event) graspsync.EventID { return eventtest.Of(e).ID }

func describe(e *nostr.Event) string {
	return fmt.Sprintf("%.8s (kind %d, time %+d)", e.ID, e.Kind, e.CreatedAt-start)
}
