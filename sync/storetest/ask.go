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

// subject is a Store under test with helpers for the checks.
type subject struct {
	relaysync.Store
	*gen
	ctx context.Context
}

func newSubject(ctx context.Context, store relaysync.Store) *subject {
	return &subject{store, newGen(1), ctx}
}

func (s *subject) save(e *nostr.Event, want graspsync.Result) error {
	return s.saveAll([]*nostr.Event{e}, want)
}

// saveAll saves one batch and checks the outcome of each event. A single result in want applies to
// all.
func (s *subject) saveAll(events []*nostr.Event, want ...graspsync.Result) error {
	got, err := s.Save(s.ctx, incoming(events...))
	if err != nil {
		return fmt.Errorf("Save: %w", err)
	}
	if len(got) != len(events) {
		return fmt.Errorf("Save of %d events gave %d outcomes", len(events), len(got))
	}
	for i, o := range got {
		w := want[min(i, len(want)-1)]
		if o.Result != w {
			return fmt.Errorf("Save of %s: %s (%v), want %s", describe(events[i]), o.Result, o.Err, w)
		}
		if failed := w == graspsync.Refused || w == graspsync.Failed; failed != (o.Err != nil) {
			return fmt.Errorf("Save of %s: %s with error %v", describe(events[i]), o.Result, o.Err)
		}
	}
	return nil
}

// deliver saves events in batches of one to five and checks only that there are outcomes.
func (s *subject) deliver(g *gen, events []*nostr.Event) error {
	for len(events) > 0 {
		n := min(1+g.IntN(5), len(events))
		got, err := s.Save(s.ctx, incoming(events[:n]...))
		if err != nil || len(got) != n {
			return fmt.Errorf("Save of %d events: %d outcomes, %v", n, len(got), err)
		}
		for i, o := range got {
			if o.Result == 0 || o.Result == graspsync.Failed {
				return fmt.Errorf("Save of %s: %s (%v)", describe(events[i]), o.Result, o.Err)
			}
		}
		events = events[n:]
	}
	return nil
}

func (s *subject) fill(events []*nostr.Event) error {
	for batch := range slices.Chunk(events, 500) {
		if err := s.saveAll(batch, graspsync.Stored); err != nil {
			return err
		}
	}
	return nil
}

// holds checks with Has and ids filters that of all exactly want is stored, and that Deleted agrees
// with the deletions in all.
func (s *subject) holds(all, want []*nostr.Event) error {
	ids := make([]graspsync.EventID, len(all))
	texts := make([]string, len(all))
	for i, e := range all {
		ids[i], texts[i] = idOf(e), e.ID
	}
	has, err := s.Has(s.ctx, ids)
	if err != nil || len(has) != len(ids) {
		return fmt.Errorf("Has of %d ids: %d answers, %v", len(ids), len(has), err)
	}
	for i, e := range all {
		if wanted := slices.ContainsFunc(want, sameID(e)); has[i] != wanted {
			return fmt.Errorf("Has of %s: %t, want %t", describe(e), has[i], wanted)
		}
		if outdated(e, all) { // the Store knows this only if the newer version arrived while it was deleted
			continue
		}
		if err := s.deleted(e, covered(e, all)); err != nil {
			return err
		}
	}
	return s.finds(nostr.Filter{IDs: texts}, want)
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
	stamps, err := s.stamps(f)
	if err == nil {
		err = compare(stamps, wanted)
	}
	if err != nil {
		return fmt.Errorf("Stamps of %s: %w", brief(f), err)
	}
	events, err := s.events(f)
	if err == nil {
		err = compare(events, wanted)
	}
	if err != nil {
		return fmt.Errorf("Events of %s: %w", brief(f), err)
	}
	return nil
}

func (s *subject) stamps(f nostr.Filter) ([]graspsync.EventKey, error) {
	return collected(s.Keys(s.ctx, f), func(key graspsync.EventKey) (graspsync.EventKey, error) { return key, nil })
}

// events returns the keys of the events that Events returns.
func (s *subject) events(f nostr.Filter) ([]graspsync.EventKey, error) {
	return collected(s.Events(s.ctx, f), func(e graspsync.Event) (graspsync.EventKey, error) {
		if parsed, err := graspsync.ParseEvent(e.Event); err != nil || parsed != e {
			return graspsync.EventKey{}, fmt.Errorf("event %s is given as another one than it is", e.ID)
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

// answers fills the Store and checks that each filter finds the matching events.
func (s *subject) answers(events []*nostr.Event, filters ...nostr.Filter) error {
	if err := s.fill(events); err != nil {
		return err
	}
	for _, f := range filters {
		if err := s.finds(f, matching(events, f)); err != nil {
			return err
		}
	}
	return nil
}

func compare(got []graspsync.EventKey, wanted map[graspsync.EventID]*nostr.Event) error {
	seen := make(map[graspsync.EventID]bool, len(got))
	for _, stamp := range got {
		e := wanted[stamp.ID]
		switch {
		case e == nil:
			return fmt.Errorf("%s is not wanted", stamp.ID)
		case seen[stamp.ID]:
			return fmt.Errorf("%s comes twice", describe(e))
		case stamp.CreatedAt != e.CreatedAt:
			return fmt.Errorf("%s has the time %d", describe(e), stamp.CreatedAt)
		}
		seen[stamp.ID] = true
	}
	if len(seen) < len(wanted) {
		return fmt.Errorf("%d of %d are missing", len(wanted)-len(seen), len(wanted))
	}
	return nil
}

// matching is a naive implementation of a filter.
func matching(events []*nostr.Event, f nostr.Filter) []*nostr.Event {
	var found []*nostr.Event
	for _, e := range events {
		if f.Matches(e) {
			found = append(found, e)
		}
	}
	return found
}

func sameID(e *nostr.Event) func(*nostr.Event) bool {
	return func(o *nostr.Event) bool { return o.ID == e.ID }
}

func idOf(e *nostr.Event) graspsync.EventID { return eventtest.Of(e).ID }

func describe(e *nostr.Event) string {
	return fmt.Sprintf("%.8s (kind %d, time %+d)", e.ID, e.Kind, e.CreatedAt-start)
}

func brief(f nostr.Filter) string {
	text := f.String()
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	return text
}

// readUntil reads until the context is canceled. It checks only errors, because the content changes
// all the time.
func (s *subject) readUntil(ctx context.Context, events []*nostr.Event) error {
	for i := 0; ctx.Err() == nil; i++ {
		e := events[i%len(events)]
		_, errStamps := s.stamps(nostr.Filter{Kinds: []int{e.Kind}})
		_, errEvents := s.events(nostr.Filter{Authors: []string{e.PubKey}})
		_, errHas := s.Has(s.ctx, []graspsync.EventID{idOf(e)})
		_, errDeleted := s.Deleted(s.ctx, eventtest.Of(e))
		if err := errors.Join(errStamps, errEvents, errHas, errDeleted); err != nil {
			return fmt.Errorf("reading while others save: %w", err)
		}
	}
	return nil
}

// stays checks that a Store without Remove returns ErrCannotRemove for every event and keeps it.
func (s *subject) stays(all []*nostr.Event) error {
	for _, e := range all {
		if err := s.Remove(s.ctx, eventtest.Of(e)); !errors.Is(err, relaysync.ErrCannotRemove) {
			return fmt.Errorf("Remove of %s: %v, where that of another one said that it can't", describe(e), err)
		}
	}
	if err := s.holds(all, all); err != nil {
		return fmt.Errorf("after a Remove that said that it can't: %w", err)
	}
	return nil
}
