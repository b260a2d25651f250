package eventstoreadapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/asker"
)

// shared is the backend for relays.
type shared struct{ s *Store }

// withoutKey is the context key of a filter that withholds events.
type withoutKey struct{}

// Without returns a context in which answers of [Store.Backend] omit events for which withheld
// returns true. Older matching events take their place.
func Without(ctx context.Context, withheld func(graspsync.Event) bool) context.Context {
	return context.WithValue(ctx, withoutKey{}, withheld)
}

func (b shared) Init() error { return nil }
func (b shared) Close()      {}

// QueryEvents implements [eventstore.Store]. It reads the whole answer first, so that a slow client
// holds no transaction and no place.
func (b shared) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	if f.Search != "" { // no supported backend has a text index
		none := make(chan *nostr.Event)
		close(none)
		return none, nil
	}
	if eventstore.IsNegentropySession(ctx) && !f.LimitZero {
		f.Limit = 0 // NIP-77 has no limit
		return b.reconciled(ctx, f)
	}
	slot, err := b.s.answers.Acquire(ctx, asker.Of(ctx), maxAnswer)
	if err != nil {
		return nil, err
	}
	events, err := b.newest(ctx, f)
	if err != nil {
		slot.Release()
		return nil, err
	}
	slot.Shrink(size(events))
	return answer(ctx, events, slot), nil
}

// looksPerQuestion is the maximum number of events and look-ups for one query of a client. It takes
// some seconds.
const looksPerQuestion = 500_000

// newest returns the newest matching events, up to the requested number and the limit of the
// backend. badger and lmdb use one index key for an address in a, A and q tags, find "repository"
// for "repo", compare only 8 bytes of an id, return an event once per value, and do not always
// return the newest of several values. So they are queried in small parts. slicestore answers in
// one query, except for a second that the limit cuts. If it takes too long, newest fails, because a
// client would treat a short answer as complete.
func (b shared) newest(ctx context.Context, f nostr.Filter) ([]*nostr.Event, error) {
	f, ok := timely(f)
	if !ok || f.LimitZero {
		return nil, ctx.Err()
	}
	most, page := f.Limit, b.s.traits.Page
	switch n := nostr.GetTheoreticalLimit(f); {
	case n >= 0 && (most <= 0 || most > n):
		most = n
	case n < 0 && most <= 0 && !b.s.traits.Memory:
		most = max(1, page/4) // as the backends do
	case n < 0 && most <= 0:
		most = page
	case n < 0:
		most = min(most, page)
	}
	f.Limit = 0
	without, _ := ctx.Value(withoutKey{}).(func(graspsync.Event) bool)
	w := walk{client: true, without: without, bounded: true, left: looksPerQuestion, newest: &newest{most: most, room: maxAnswer}}
	err := b.s.walkBy(ctx, f, &w)
	if err != nil && !errors.Is(err, ErrIncomplete) { // badger may cut a second with too many events
		return nil, err
	}
	return w.newest.sorted(), nil
}

// reconciled returns id, time, author and kind of all matching events, which a reconciliation
// needs. Whole events would not fit in memory.
func (b shared) reconciled(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	type entry struct {
		graspsync.EventKey
		author graspsync.PubKey
		kind   int
	}
	var all []entry
	err := b.s.walkBy(ctx, f, &walk{client: true, yield: func(e graspsync.Event) bool {
		all = append(all, entry{e.Key(), e.PubKey, e.Kind})
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
			case ch <- &nostr.Event{ID: one.ID.String(), PubKey: one.author.String(), CreatedAt: one.CreatedAt, Kind: one.kind}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ch, nil
}

// CountEvents implements [eventstore.Counter]. It reads the events, because badger and lmdb also
// count events that do not match exactly.
func (b shared) CountEvents(ctx context.Context, f nostr.Filter) (n int64, err error) {
	f.Limit, f.LimitZero = 0, false
	f, ok := timely(f)
	if !ok || f.Search != "" {
		return 0, ctx.Err()
	}
	err = b.s.walkBy(ctx, f, &walk{client: true, bounded: true, left: looksPerQuestion, yield: func(graspsync.Event) bool {
		n++
		return true
	}})
	return n, err
}

func (b shared) SaveEvent(ctx context.Context, e *nostr.Event) error {
	o, err := b.save(ctx, e)
	if err == nil && o.Result == graspsync.Duplicate {
		return eventstore.ErrDupEvent
	}
	return err
}

// ReplaceEvent returns ErrDupEvent for a version that is not newer, so that relays do not broadcast
// it.
func (b shared) ReplaceEvent(ctx context.Context, e *nostr.Event) error {
	o, err := b.save(ctx, e)
	if err == nil && (o.Result == graspsync.Duplicate || o.Result == graspsync.Superseded) {
		return eventstore.ErrDupEvent
	}
	return err
}

func (b shared) save(ctx context.Context, e *nostr.Event) (graspsync.Outcome, error) {
	parsed, err := graspsync.ParseEvent(e)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnstorable, err)
		return graspsync.Outcome{Result: graspsync.Refused, Err: err}, fmt.Errorf("invalid: %w", err)
	}
	outcomes, err := b.s.Save(ctx, []graspsync.Incoming{{Event: parsed}})
	if err != nil {
		return graspsync.Outcome{}, err
	}
	if len(outcomes) != 1 {
		return graspsync.Outcome{}, errors.New("no outcome")
	}
	switch o := outcomes[0]; o.Result {
	case graspsync.Deleted:
		return o, ErrDeleted
	case graspsync.Refused:
		return o, fmt.Errorf("invalid: %w", o.Err)
	default:
		return o, o.Err
	}
}

func (b shared) DeleteEvent(ctx context.Context, e *nostr.Event) error {
	parsed, err := graspsync.ParseEvent(e)
	if err != nil {
		return nil //nolint:nilerr // it can't be here
	}
	return b.s.Remove(ctx, parsed)
}
