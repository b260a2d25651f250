package eventstoreadapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	relaysync "github.com/graspsync/graspsync/sync"
)

// Backend returns the backend as a relay should use it: what clients write is saved
// under the same locks and by the same rules as what Save is given, and queries are
// serialised where that is needed. Queries keep the backend's own limits, but those
// for a reconciliation (NIP-77) are answered completely, like Events, and without
// the memory that badger and lmdb take for them. Init and Close of what is returned
// do nothing. CountEvents fails if the backend can't count.
func (s *Store) Backend() interface {
	eventstore.Store
	eventstore.Counter
} {
	return shared{s}
}

// shared is the view of a Store that relays get.
type shared struct{ s *Store }

func (b shared) Init() error { return nil }
func (b shared) Close()      {}

// QueryEvents reads the whole answer first, so that a slow client holds neither a
// read transaction nor the turn of others.
func (b shared) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	if !queryable(f, b.s.reader.profile) {
		none := make(chan *nostr.Event)
		close(none)
		return none, nil
	}
	events, err := b.query(ctx, f)
	if err != nil {
		return nil, err
	}
	ch := make(chan *nostr.Event, len(events))
	for _, e := range events {
		ch <- e
	}
	close(ch)
	return ch, nil
}

func (b shared) query(ctx context.Context, f nostr.Filter) ([]*nostr.Event, error) {
	if eventstore.IsNegentropySession(ctx) && !f.LimitZero && f.Search == "" {
		f.Limit = 0 // NIP-77 knows none
		return b.s.all(ctx, f)
	}
	return b.s.reader.queryOnce(ctx, f, false)
}

// queryable reports whether a client's filter can be put to the backend without
// harm: badger and lmdb crash over tags without a name.
func queryable(f nostr.Filter, p profile) bool {
	if !p.prefixes {
		return true
	}
	for name := range f.Tags {
		if name == "" {
			return false
		}
	}
	return true
}

func (b shared) CountEvents(ctx context.Context, f nostr.Filter) (int64, error) {
	if !queryable(f, b.s.reader.profile) {
		return 0, nil
	}
	since := f.Since
	if since != nil && b.s.reader.profile.exclusive {
		f.Since = ptr(*since - 1) // count adds it again
	}
	n, err := b.s.reader.count(ctx, f)
	return int64(n), err
}

func (b shared) SaveEvent(ctx context.Context, e *nostr.Event) error {
	o, err := b.save(ctx, e)
	if err == nil && o.Result == relaysync.Duplicate {
		return eventstore.ErrDupEvent
	}
	return err
}

// ReplaceEvent is silent about versions that are not newer, like that of backends.
func (b shared) ReplaceEvent(ctx context.Context, e *nostr.Event) error {
	_, err := b.save(ctx, e)
	return err
}

func (b shared) save(ctx context.Context, e *nostr.Event) (relaysync.Outcome, error) {
	outcomes, err := b.s.Save(ctx, []relaysync.Incoming{{Event: e}})
	if err != nil {
		return relaysync.Outcome{}, err
	}
	if len(outcomes) != 1 {
		return relaysync.Outcome{}, errors.New("no outcome")
	}
	switch o := outcomes[0]; o.Result {
	case relaysync.Deleted:
		return o, ErrDeleted
	case relaysync.Refused:
		return o, fmt.Errorf("invalid: %w", o.Err)
	default:
		return o, o.Err
	}
}

func (b shared) DeleteEvent(ctx context.Context, e *nostr.Event) error { return b.s.Remove(ctx, e) }
