package eventstoreadapter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

var (
	// errStop ends a walk whose consumer has had enough.
	errStop = errors.New("stop")
)

// idsPerQuery is the most ids looked up at once.
const idsPerQuery = 256

// kindOfNone is a kind added to queries that badger and lmdb would otherwise limit
// by what they think such a filter can match.
const kindOfNone = math.MaxUint16

// walk reads all events that match one filter. Owned by one iteration.
type walk struct {
	*guard
	batch int
	want  matcher
	since *nostr.Timestamp
	until *nostr.Timestamp
	seen  map[graspsync.EventID]struct{}
	yield func(graspsync.Event) bool
	// rare: a look-up of deletions and records of versions. Most often there are none, which badger and
	// lmdb report fastest when they count.
	rare bool
	// client: somebody asks of whom nothing is known, and what was stored to be asked for may be meant to cost memory. Queries
	// are small then, and few run at once.
	client bool
	// page is how many events one query is asked for, unless a second has more.
	page int
	// left is how many events and look-ups it may still cost, with the time that these take; what is bounded is.
	bounds bool
	left   int
	// beside is what a client's filter has besides what is looked up.
	beside nostr.Filter
	// newest, if it is set, keeps what is wanted. open is what is read a page of at a time, in turn: so that soon what is newest is known, and little is
	// read of the rest.
	newest *newest
	open   []*pages
	// missed is about the first second of which not all could be read: the others are
	// read all the same.
	missed error
}

func (w *walk) run(ctx context.Context, f nostr.Filter) error {
	if f.Limit != 0 || f.LimitZero || f.Search != "" {
		return fmt.Errorf("%w: limit or search", ErrFilter)
	}
	q, ok := plan(f, w.profile)
	if !ok {
		return ctx.Err()
	}
	w.want = compile(f)
	w.want.records = w.rare
	if f.Since != nil && *f.Since > 0 {
		w.since = f.Since
	}
	if f.Until != nil && *f.Until < latest {
		w.until = f.Until
	}
	if q.IDs != nil {
		return w.ids(ctx, q.IDs)
	}
	if w.client && !w.profile.memory {
		w.beside, q = q, indexed(q)
	}
	if err := w.lists(ctx, slim(q, maxValues)); err != nil {
		return err
	}
	if err := w.rounds(ctx); err != nil {
		return err
	}
	return w.missed
}

// What one query is asked for where a client's question is answered.
const (
	clientPage    = 64  // events; as many bytes as they have are in memory, with those of other queries that run
	clientBatch   = 256 // the same where more are counted
	clientLookUps = 16  // combinations of values: each may find the same event, and has one of its own in memory
)

// safely is how many events several look-ups are asked for at once where nobody has counted them; 0: they can't be. badger gathers as many
// for each if that is less than 50 in all, and crashes now and then where it is more, in a goroutine of its own.
func (w *walk) safely(q nostr.Filter, limit int) int {
	if n := w.profile.lookUps(w.bounded(q, w.since, w.until)); !w.profile.memory && n > 1 {
		return min(limit, 49/n)
	}
	return limit
}

// bound sets how large queries are.
func (w *walk) bound() {
	w.page = w.profile.page
	if w.client && !w.profile.memory {
		w.page, w.batch = min(w.page, clientPage), min(w.batch, clientBatch)
	}
}

// take yields what matches and was not yielded before.
func (w *walk) take(events []*nostr.Event) error {
	for _, e := range events {
		parsed, err := graspsync.ParseEvent(e)
		if err != nil {
			continue
		}
		if _, ok := w.seen[parsed.ID]; ok || !w.want.match(e) {
			continue
		}
		w.seen[parsed.ID] = struct{}{}
		if w.newest != nil {
			w.newest.add(e)
		} else if !w.yield(parsed) {
			return errStop
		}
	}
	if w.newest != nil && w.newest.full() && (w.since == nil || *w.since < w.newest.events[0].CreatedAt) {
		w.since = ptr(w.newest.events[0].CreatedAt)
	}
	return nil
}

func (w *walk) ids(ctx context.Context, ids []string) error {
	size := min(idsPerQuery, w.page)
	if w.client && !w.profile.memory {
		size = min(size, clientLookUps)
	}
	for chunk := range slices.Chunk(ids, size) {
		events, err := w.put(ctx, nostr.Filter{IDs: chunk, Limit: len(chunk)}, false)
		if err == nil {
			err = w.take(events)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lists reads a filter with lists of any length. Where an answer is the newest
// events whatever the filter, pages do; elsewhere an answer with several values is
// only good if it is not full, and lists are halved until it is not.
func (w *walk) lists(ctx context.Context, q nostr.Filter) error {
	switch n, over := w.profile.lookUps(q), w.profile.excess(q); {
	case !single(over):
		return w.halves(ctx, q, over)
	case n == 1:
		if !w.profile.memory && nostr.GetTheoreticalLimit(q) >= 0 {
			if done, err := w.versions(ctx, q); err != nil || done {
				return err
			}
		}
	case w.client && n > clientLookUps:
		return w.halves(ctx, q, w.profile.lookedUp(q))
	default:
		done, err := w.whole(ctx, q)
		if err != nil || done {
			return err
		}
		if w.newest != nil {
			return w.singles(ctx, q)
		}
		return w.halves(ctx, q, w.profile.lookedUp(q))
	}
	return w.all(ctx, q, w.until)
}

// singles is lists of a filter of which each combination is looked up by itself.
func (w *walk) singles(ctx context.Context, q nostr.Filter) error {
	if w.profile.lookUps(q) == 1 {
		return w.lists(ctx, q)
	}
	a, b := halve(q, w.profile.lookedUp(q))
	if err := w.singles(ctx, a); err != nil {
		return err
	}
	return w.singles(ctx, b)
}

// versions reads what one author has at one address, or what looks like it, if that is not much. Pages can't be asked
// for by kind there, and the author may have thousands of events of others.
func (w *walk) versions(ctx context.Context, q nostr.Filter) (done bool, err error) {
	limit := w.safely(q, min(w.page, fewEvents))
	events, err := w.ask(ctx, q, w.since, w.until, limit)
	if err == nil {
		err = w.take(events)
	}
	if err != nil || len(events) < limit {
		return true, err
	}
	return w.whole(ctx, q)
}

func (w *walk) halves(ctx context.Context, q, by nostr.Filter) error {
	a, b := halve(q, by)
	if err := w.lists(ctx, a); err != nil {
		return err
	}
	return w.lists(ctx, b)
}

// whole reads a filter with one query, if one can hold the answer. It counts
// first, because an answer of badger and lmdb that reaches its limit is of no use,
// and one that is empty or cut short by an error looks like any other.
func (w *walk) whole(ctx context.Context, q nostr.Filter) (done bool, err error) {
	if !w.counts() || w.client { // a count has no end
		limit := w.safely(q, w.first())
		if limit == 0 {
			return false, nil
		}
		events, err := w.ask(ctx, q, w.since, w.until, limit)
		if err == nil {
			err = w.take(events)
		}
		return len(events) < limit, err
	}
	for range maxRecounts {
		n, err := w.count(ctx, w.bounded(q, w.since, w.until))
		if err != nil || n == 0 {
			return true, err
		}
		room := max(w.page, min(w.profile.exempt, w.batch))
		limit := min(n+n/8+16, room) // some may come in between
		if n >= limit {
			return false, nil
		}
		events, err := w.ask(ctx, q, w.since, w.until, limit)
		if err != nil {
			return false, err
		}
		if err := w.take(events); err != nil {
			return false, err
		}
		if len(events) >= n && len(events) < limit {
			return true, nil
		}
	}
	return false, nil
}

// bounded is the query for q between two times.
func (w *walk) bounded(q nostr.Filter, since, until *nostr.Timestamp) nostr.Filter {
	if !w.profile.memory && nostr.GetTheoreticalLimit(q) >= 0 {
		q.Kinds = append(slices.Clip(q.Kinds), kindOfNone)
	}
	if until != nil && *until < latest {
		q.Until = ptr(*until)
	}
	if since != nil && *since > 0 && (!w.profile.prefixes || fixed(q)) {
		q.Since = ptr(*since)
		if w.profile.memory {
			*q.Since--
		}
	}
	return q
}

func (w *walk) ask(
	ctx context.Context, q nostr.Filter, since, until *nostr.Timestamp, limit int,
) ([]*nostr.Event, error) {
	if w.bounds && w.left <= 0 {
		return nil, ErrTooMuch
	}
	q = w.bounded(q, since, until)
	q.Limit = limit
	events, err := w.put(ctx, q, limit > w.profile.page)
	w.left -= w.profile.lookUps(q) + len(events)
	return events, err
}

// put puts a query to the backend.
func (w *walk) put(ctx context.Context, q nostr.Filter, exempt bool) ([]*nostr.Event, error) {
	if w.client {
		ctx = forClient(ctx)
	}
	return w.query(ctx, q, exempt)
}

// first is how many events are asked for first: where it is the newest that are wanted one more than these, which shows that
// there are no others of their second.
func (w *walk) first() int {
	if w.newest == nil {
		return w.page
	}
	return min(w.page, w.newest.most+1)
}

// fewEvents is the size of the first page where more is asked for only if that is full: most
// walks are of few events, and badger makes room for twice as many as it is asked for.
const fewEvents = 32

// pages is what is read back in time: look-ups of one combination of values.
type pages struct {
	q     nostr.Filter
	until *nostr.Timestamp
	size  int // events that are asked for next
	done  bool
}

// all reads all pages, or where it is the newest that are wanted has them read in turn.
func (w *walk) all(ctx context.Context, q nostr.Filter, until *nostr.Timestamp) error {
	if !w.profile.memory && nostr.GetTheoreticalLimit(q) >= 0 {
		q.Kinds = nil // else only so many are given as replaceable events should exist
	}
	if w.rare && !w.profile.memory && w.counts() { // slicestore counts what its queries do not give
		if n, err := w.count(ctx, w.bounded(q, w.since, until)); err != nil || n == 0 {
			return err
		}
	}
	p := &pages{q: q, until: until}
	if w.newest != nil {
		w.open = append(w.open, p)
		return nil
	}
	p.size = min(w.page, fewEvents)
	for !p.done {
		if err := w.next(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// rounds reads a page of each of what is open, until there is nothing more of any that has room among the newest.
func (w *walk) rounds(ctx context.Context) error {
	for len(w.open) > 0 {
		open := w.open
		w.open = nil
		share := 2*w.newest.most/len(open) + leastShare // some have more of the newest than others
		for _, p := range open {
			if p.until != nil && w.newest.past(*p.until) {
				continue
			}
			if p.size == 0 {
				p.size = min(share, w.first())
			}
			if err := w.next(ctx, p); err != nil {
				return err
			}
			if !p.done {
				w.open = append(w.open, p)
			}
		}
	}
	return nil
}

// leastShare is how many events of each combination are asked for at least where there are many.
const leastShare = 4

// next reads a page.
func (w *walk) next(ctx context.Context, p *pages) error {
	events, err := w.ask(ctx, p.q, w.since, p.until, p.size)
	if err == nil {
		err = w.take(events)
	}
	if err != nil {
		return err
	}
	if len(events) < p.size {
		p.done = true
		return nil
	}
	low, ok := w.lowest(p.q, events)
	switch whole := p.size >= w.page; {
	case ok && w.newest.past(low):
		p.done = true
		return nil
	case !ok && !whole, ok && p.until != nil && low == *p.until && !whole: // all of one second, or of what looks alike
		p.size = w.page
		return nil
	case !ok:
		p.until, p.done, err = w.beyond(ctx, p.q, p.until)
		if err != nil || p.done {
			return err
		}
	case p.until == nil || low < *p.until:
		p.until = &low
	case low > *p.until:
		return fmt.Errorf("%w: it ignores until", ErrBackend)
	default:
		err := w.second(ctx, p.q, low)
		if err != nil && !errors.Is(err, ErrIncomplete) {
			return err
		}
		if w.missed == nil {
			w.missed = err
		}
		p.until = ptr(low - 1)
	}
	if w.newest != nil {
		p.size = min(w.page, 4*p.size)
	} else {
		p.size = w.page
	}
	p.done = p.until != nil && (*p.until < 0 || w.since != nil && *p.until < *w.since || w.newest.past(*p.until))
	return nil
}

// lowest returns the time down to which a page is complete: of the oldest event
// that has what was asked for, and not what only looks like it as well. Others may be anywhere, but where all keys are of one length.
func (w *walk) lowest(q nostr.Filter, events []*nostr.Event) (low nostr.Timestamp, ok bool) {
	anywhere := w.profile.prefixes && !fixed(q)
	for _, e := range events {
		if anywhere && (!q.MatchesIgnoringTimestampConstraints(e) || looksLike(e, q)) {
			continue
		}
		if !ok || e.CreatedAt < low {
			low, ok = e.CreatedAt, true
		}
	}
	return low, ok
}

// beyond goes on where a page is full of events that only look alike: with a
// larger page, and else without the index of tags. It returns where to continue,
// or that everything is done.
func (w *walk) beyond(
	ctx context.Context, q nostr.Filter, until *nostr.Timestamp,
) (next *nostr.Timestamp, done bool, err error) {
	if limit := min(w.profile.exempt, w.batch); limit > w.page {
		events, err := w.ask(ctx, q, w.since, until, limit)
		if err == nil {
			err = w.take(events)
		}
		if err != nil || len(events) < limit {
			return nil, true, err
		}
		if low, ok := w.lowest(q, events); ok && (until == nil || low < *until) {
			return &low, false, nil
		}
	}
	if q.Tags == nil {
		return nil, true, fmt.Errorf("%w: answers do not match the query", ErrBackend)
	}
	if q.Tags = nil; w.client {
		q.Authors, q.Kinds = w.beside.Authors, w.beside.Kinds
	}
	if w.profile.lookUps(q) > 1 { // pages of that are no pages
		return nil, true, w.lists(ctx, q)
	}
	return nil, true, w.all(ctx, q, until)
}
