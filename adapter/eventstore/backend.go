package eventstoreadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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
		events = fitting(events, maxAnswer)
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

// fitting returns so many of the newest events as have no more than most bytes, one at least: all of
// them, in their order, where they have not more.
func fitting(events []*nostr.Event, most int) []*nostr.Event {
	all := 0
	for _, e := range events {
		all += bytesOf(e)
	}
	if all <= most {
		return events
	}
	newestFirst(events)
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
	if f.LimitZero || f.Search != "" { // these are not counted as they are answered
		return b.s.reader.queryOnce(ctx, f, false)
	}
	if b.s.reader.profile.compact {
		return b.newest(ctx, f)
	}
	events, err := b.s.reader.query(ctx, f, false)
	return compile(f).among(events), err
}

func unparsed(events []graspsync.Event) []*nostr.Event {
	out := make([]*nostr.Event, len(events))
	for i, e := range events {
		out[i] = e.Event
	}
	return out
}

// newest returns the newest events that match, as many as are asked for. badger keeps an address under the
// same key whether it stands in an a, A or q tag, and finds "repository" for "repo"; badger and lmdb know 8 bytes of an
// id, and give an event once for each value that it has: what only looks alike comes as well. Where that has
// filled the answer a larger one is asked for, and at last all is looked through.
func (b shared) newest(ctx context.Context, f nostr.Filter) ([]*nostr.Event, error) {
	f, ok := within32Bits(f)
	if !ok {
		return nil, ctx.Err()
	}
	sought := b.s.reader.profile
	sought.indexed = func(name, value string) bool { return len(name) == 1 && value != "" && len(value) <= longestIndexed }
	q, ok := plan(f, sought)
	if !ok {
		return nil, ctx.Err()
	}
	q.Since, q.Until = f.Since, f.Until
	want, page := compile(f), sought.page
	most, n := f.Limit, nostr.GetTheoreticalLimit(q)
	switch {
	case n >= 0 && (most <= 0 || most > n):
		most = n
	case n < 0 && (most <= 0 || most > page):
		most = max(1, page/4) // as they have it
	}
	if q.IDs == nil && len(q.Tags) < len(want.tags) {
		return b.look(ctx, f, most, nil) // it would look for a key that it never makes
	}
	q.Limit = most
	first, err := b.s.reader.query(ctx, q, false)
	for answer := first; err == nil; answer, err = b.s.reader.queryOnce(ctx, q, false) {
		match := want.among(answer)
		switch {
		case len(answer) < q.Limit, len(match) >= most, q.IDs != nil:
			newestFirst(match)
			return match[:min(len(match), most)], nil
		case n >= 0, q.Limit >= page: // of these they give no more, whatever is asked for
			return b.look(ctx, f, most, first)
		}
		q.Limit = min(4*q.Limit, page)
	}
	return nil, err
}

// looksPerQuestion is how many queries a client's question may cost that no index answers: as many
// as a few tens of thousands of events take, which is less than a second.
const looksPerQuestion = 32

// look is newest for what no index finds, or where what only looks alike fills the largest page: it goes back in
// time, for each author and kind by itself. Where that takes too long, what has come fills the answer up:
// less than was asked for would be taken for all there is.
func (b shared) look(ctx context.Context, f nostr.Filter, most int, come []*nostr.Event) ([]*nostr.Event, error) {
	f.Limit = 0
	var found []*nostr.Event
	err := b.s.walkBy(ctx, f, walk{
		most: most, left: looksPerQuestion, batch: 4 * b.s.reader.profile.page,
		yield: func(e graspsync.Event) bool { found = append(found, e.Event); return true },
	})
	newestFirst(found)
	switch {
	case errors.Is(err, errSpent):
		found = distinct(append(found, come...))
	case err != nil && !errors.Is(err, ErrIncomplete): // of a second, of which more is there than badger gives
		return nil, err
	}
	return found[:min(len(found), most)], nil
}

func newestFirst(events []*nostr.Event) {
	slices.SortStableFunc(events, func(a, b *nostr.Event) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
}

// distinct returns each event once.
func distinct(events []*nostr.Event) []*nostr.Event {
	seen := make(map[string]bool, len(events))
	return slices.DeleteFunc(events, func(e *nostr.Event) bool {
		defer func() { seen[e.ID] = true }()
		return seen[e.ID]
	})
}

// within32Bits returns a filter without bounds that no event is beyond: badger and lmdb take what of a time fits
// 32 bits. It is false for one that no event is within.
func within32Bits(f nostr.Filter) (nostr.Filter, bool) {
	if f.Until != nil && *f.Until >= math.MaxUint32 {
		f.Until = nil
	}
	if f.Since != nil && *f.Since <= 0 {
		f.Since = nil
	}
	return f, (f.Until == nil || *f.Until >= 0) && (f.Since == nil || *f.Since < math.MaxUint32)
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
	if b.s.reader.profile.compact {
		var ok bool
		if f, ok = within32Bits(f); !ok {
			return 0, ctx.Err()
		}
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
