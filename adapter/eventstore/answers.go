package eventstoreadapter

import (
	"context"
	"errors"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/asker"
)

// Query answers a client with the newest matching events, up to the limit of the backend and 8 MiB.
// Searches (NIP-50) find nothing. Reconciliations (NIP-77) get all ids and times.
//
// A query that reads more than 500,000 events fails with ErrTooMuch. The whole answer is read first,
// but not while the client has 32 MiB unread, or all clients have 128 MiB.
func (s *Store) Query(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	if f.Search != "" { // no supported backend has a text index
		none := make(chan *nostr.Event)
		close(none)
		return none, nil
	}
	if eventstore.IsNegentropySession(ctx) && !f.LimitZero {
		f.Limit = 0 // NIP-77 has no limit
		return s.reconciled(ctx, f)
	}
	slot, err := s.answers.Acquire(ctx, asker.Of(ctx), maxAnswer)
	if err != nil {
		return nil, err
	}
	events, err := s.newestFor(ctx, f)
	if err != nil {
		slot.Release()
		return nil, err
	}
	slot.Shrink(size(events))
	return answer(ctx, events, slot), nil
}

// looksPerQuestion is the maximum number of events and look-ups for a query of a client.
const looksPerQuestion = 500_000

// newestFor fails if it takes too long, because a short answer would look complete.
func (s *Store) newestFor(ctx context.Context, f nostr.Filter) ([]*nostr.Event, error) {
	f, ok := timely(f)
	if !ok || f.LimitZero {
		return nil, ctx.Err()
	}
	most, page := f.Limit, s.traits.Page
	switch n := nostr.GetTheoreticalLimit(f); {
	case n >= 0 && (most <= 0 || most > n):
		most = n
	case n < 0 && most <= 0 && !s.traits.Memory:
		most = max(1, page/4) // as the backends do
	case n < 0 && most <= 0:
		most = page
	case n < 0:
		most = min(most, page)
	}
	f.Limit = 0
	w := walk{client: true, without: s.cfg.Hides, left: looksPerQuestion, newest: &newest{most: most, room: maxAnswer}}
	err := s.walk(ctx, f, &w)
	if err != nil && !errors.Is(err, ErrIncomplete) { // badger may cut a second with too many events
		return nil, err
	}
	return w.newest.events, nil
}

// reconciled returns id and time of all matching events. Whole events would not fit in memory.
func (s *Store) reconciled(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	var all []graspsync.EventKey
	err := s.walk(ctx, f, &walk{client: true, without: s.cfg.Hides, yield: func(e graspsync.Event) bool {
		all = append(all, e.Key())
		return true
	}})
	if err != nil {
		return nil, err
	}
	ch := make(chan *nostr.Event)
	go func() {
		defer close(ch)
		for _, one := range all {
			select {
			case ch <- &nostr.Event{ID: one.ID.String(), CreatedAt: one.CreatedAt}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ch, nil
}
