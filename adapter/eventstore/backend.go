package eventstoreadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

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
	if !eventstore.IsNegentropySession(ctx) {
		events = newest(events, maxAnswer)
	}
	ch := make(chan *nostr.Event, len(events))
	for _, e := range events {
		ch <- e
	}
	close(ch)
	return ch, nil
}

// maxAnswer is how large an answer is at most, in bytes, unless it has but one event.
const maxAnswer = 8 << 20

// newest returns so many of the newest events as have no more than most bytes, one at least: all of
// them, in their order, where they have not more.
func newest(events []*nostr.Event, most int) []*nostr.Event {
	all := 0
	for _, e := range events {
		all += bytesOf(e)
	}
	if all <= most {
		return events
	}
	slices.SortStableFunc(events, func(a, b *nostr.Event) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	n, left := 1, most-bytesOf(events[0])
	for ; n < len(events) && bytesOf(events[n]) <= left; n++ {
		left -= bytesOf(events[n])
	}
	return slices.Clone(events[:n]) // the others are not kept for these
}

// bytesOf is about how many bytes an event takes.
func bytesOf(e *nostr.Event) int {
	n := 500 + len(e.Content)
	for _, tag := range e.Tags {
		n += 50
		for _, v := range tag {
			n += 16 + len(v)
		}
	}
	return n
}

func (b shared) query(ctx context.Context, f nostr.Filter) ([]*nostr.Event, error) {
	if eventstore.IsNegentropySession(ctx) && !f.LimitZero && f.Search == "" {
		f.Limit = 0 // NIP-77 knows none
		events, err := b.s.all(ctx, f)
		return unparsed(events), err
	}
	once := b.s.reader.query
	if f.LimitZero || f.Search != "" { // these are not counted as they are answered
		once = b.s.reader.queryOnce
	}
	events, err := once(ctx, f, false)
	if err != nil || !b.s.reader.profile.compact || f.LimitZero {
		return events, err
	}
	return b.matching(ctx, f, events)
}

func unparsed(events []graspsync.Event) []*nostr.Event {
	out := make([]*nostr.Event, len(events))
	for i, e := range events {
		out[i] = e.Event
	}
	return out
}

// matching returns what of an answer matches. badger keeps an address under the same key whether
// it stands in an a, A or q tag, and both badger and lmdb know 8 bytes of an id: what only looks alike
// comes as well. Where that has filled the answer a larger one is asked for; where that fills
// the largest as well the answer stays as it is, since less than was asked for would be
// taken for all there is.
func (b shared) matching(ctx context.Context, f nostr.Filter, first []*nostr.Event) ([]*nostr.Event, error) {
	want, page := compile(f), b.s.reader.profile.page
	most, fixed := f.Limit, false
	if most <= 0 || most > page {
		most = max(1, page/4) // as they have it
	}
	if n := nostr.GetTheoreticalLimit(f); n >= 0 {
		most, fixed = n, true
	}
	answer := first
	for asked := most; ; {
		match := slices.DeleteFunc(slices.Clone(answer), func(e *nostr.Event) bool { return !want.match(e) })
		switch {
		case len(answer) < asked, len(match) >= most, fixed:
			slices.SortStableFunc(match, func(a, b *nostr.Event) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
			return match[:min(len(match), most)], nil
		case asked >= page:
			return first, nil
		}
		asked = min(4*asked, page)
		f.Limit = asked
		var err error
		if answer, err = b.s.reader.queryOnce(ctx, f, false); err != nil {
			return nil, err
		}
	}
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
	if err == nil && o.Result == graspsync.Duplicate {
		return eventstore.ErrDupEvent
	}
	return err
}

// ReplaceEvent says of a version that is not newer that it is there already: nobody is to be sent it.
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
