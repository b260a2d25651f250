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
	// errSpent ends one that has made as many queries as it may.
	errSpent = errors.New("too many queries")
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
	// rare: most often there is nothing, which badger and lmdb say fastest when they count.
	rare bool
	// most, if it is set, is how many of the newest events of each author, kind and value are wanted,
	// and left how many queries they may still cost.
	most, left int
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
	if f.Since != nil && *f.Since > 0 {
		w.since = f.Since
	}
	if f.Until != nil && *f.Until < math.MaxUint32 {
		w.until = f.Until
	}
	if q.IDs != nil {
		return w.ids(ctx, q.IDs)
	}
	if err := w.lists(ctx, slim(q, w.profile.values)); err != nil {
		return err
	}
	return w.missed
}

// take yields what matches and was not yielded before.
func (w *walk) take(events []*nostr.Event) error {
	for _, e := range events {
		parsed, err := graspsync.ParseEvent(e)
		if err != nil || !w.want.match(e) {
			continue
		}
		if _, ok := w.seen[parsed.ID]; ok {
			continue
		}
		w.seen[parsed.ID] = struct{}{}
		if !w.yield(parsed) {
			return errStop
		}
	}
	return nil
}

func (w *walk) ids(ctx context.Context, ids []string) error {
	for chunk := range slices.Chunk(ids, min(idsPerQuery, w.profile.page)) {
		events, err := w.query(ctx, nostr.Filter{IDs: chunk, Limit: len(chunk)}, false)
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
	switch {
	case single(q):
		if w.profile.trusted && !w.profile.sorted && nostr.GetTheoreticalLimit(q) >= 0 {
			if done, err := w.versions(ctx, q); err != nil || done {
				return err
			}
		}
	case size(q) > w.profile.values:
		return w.halves(ctx, q)
	case !w.profile.sorted:
		done, err := w.whole(ctx, q)
		if err != nil || done {
			return err
		}
		return w.halves(ctx, q)
	}
	return w.pages(ctx, q, w.until)
}

// versions reads what one author has at one address, or what looks like it, if that is not much. Pages can't be asked
// for by kind there, and the author may have thousands of events of others.
func (w *walk) versions(ctx context.Context, q nostr.Filter) (done bool, err error) {
	limit := min(w.profile.page, fewEvents)
	events, err := w.ask(ctx, q, w.since, w.until, limit)
	if err == nil {
		err = w.take(events)
	}
	if err != nil || len(events) < limit {
		return true, err
	}
	return w.whole(ctx, q)
}

func (w *walk) halves(ctx context.Context, q nostr.Filter) error {
	a, b := halve(q)
	if err := w.lists(ctx, a); err != nil {
		return err
	}
	return w.lists(ctx, b)
}

// whole reads a filter with one query, if one can hold the answer. It counts
// first, because an answer of badger and lmdb that reaches its limit is of no use,
// and one that is empty or cut short by an error looks like any other.
func (w *walk) whole(ctx context.Context, q nostr.Filter) (done bool, err error) {
	if !w.counts() || w.most > 0 { // a count has no end
		events, err := w.ask(ctx, q, w.since, w.until, w.profile.page)
		if err == nil {
			err = w.take(events)
		}
		return len(events) < w.profile.page, err
	}
	for range maxRecounts {
		n, err := w.count(ctx, w.bounded(q, w.since, w.until))
		if err != nil || n == 0 {
			return true, err
		}
		room := max(w.profile.page, min(w.profile.exempt, w.batch))
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
	if !w.profile.sorted && nostr.GetTheoreticalLimit(q) >= 0 {
		q.Kinds = append(slices.Clip(q.Kinds), kindOfNone)
	}
	if until != nil && *until < math.MaxUint32 {
		q.Until = ptr(*until)
	}
	if since != nil && *since > 0 && (!w.profile.prefixes || fixed(q)) {
		q.Since = ptr(*since)
		if w.profile.exclusive {
			*q.Since--
		}
	}
	return q
}

func (w *walk) ask(
	ctx context.Context, q nostr.Filter, since, until *nostr.Timestamp, limit int,
) ([]*nostr.Event, error) {
	if w.most > 0 {
		if w.left--; w.left < 0 {
			return nil, errSpent
		}
	}
	q = w.bounded(q, since, until)
	q.Limit = limit
	return w.query(ctx, q, limit > w.profile.page)
}

// fewEvents is the size of the first page where more is asked for only if that is full: most
// walks are of few events, and badger makes room for twice as many as it is asked for.
const fewEvents = 32

// pages walks back in time from until.
func (w *walk) pages(ctx context.Context, q nostr.Filter, until *nostr.Timestamp) error {
	if !w.profile.sorted && nostr.GetTheoreticalLimit(q) >= 0 {
		q.Kinds = nil // else only so many are given as replaceable events should exist
	}
	if w.rare && w.profile.compact && w.counts() { // elsewhere counts may work where queries fail
		if n, err := w.count(ctx, w.bounded(q, w.since, until)); err != nil || n == 0 {
			return err
		}
	}
	page := w.profile.page
	if w.profile.trusted {
		page = min(page, fewEvents)
	}
	for had := 0; ; {
		events, err := w.ask(ctx, q, w.since, until, page)
		if err != nil {
			return err
		}
		if err := w.take(events); err != nil {
			return err
		}
		full := len(events) >= page
		if len(events) == 0 || !full && w.profile.trusted {
			return nil
		}
		if page < w.profile.page { // there may be more, of the same second as well
			page = w.profile.page
			continue
		}
		low, ok := w.lowest(q, events)
		if ok && w.most > 0 {
			if had += w.above(events, low); had >= w.most {
				return nil
			}
		}
		switch {
		case !ok && !full:
			return nil
		case !ok:
			next, done, err := w.beyond(ctx, q, until)
			if err != nil || done {
				return err
			}
			until = next
		case until == nil || low < *until:
			until = &low
		case low > *until:
			return fmt.Errorf("%w: it ignores until", ErrBackend)
		default:
			if full {
				err := w.second(ctx, q, low)
				if err != nil && !errors.Is(err, ErrIncomplete) {
					return err
				}
				if w.missed == nil {
					w.missed = err
				}
			}
			until = ptr(low - 1)
		}
		if until != nil && (*until < 0 || w.since != nil && *until < *w.since) {
			return nil
		}
	}
}

// lowest returns the time down to which a page is complete: of the oldest event
// that has what was asked for. Others may be anywhere.
func (w *walk) lowest(q nostr.Filter, events []*nostr.Event) (low nostr.Timestamp, ok bool) {
	for _, e := range events {
		if w.profile.prefixes && !q.MatchesIgnoringTimestampConstraints(e) {
			continue
		}
		if !ok || e.CreatedAt < low {
			low, ok = e.CreatedAt, true
		}
	}
	return low, ok
}

// above is how many events match that are newer than low: they come on no later page.
func (w *walk) above(events []*nostr.Event, low nostr.Timestamp) (n int) {
	for _, e := range events {
		if e.CreatedAt > low && w.want.match(e) {
			n++
		}
	}
	return n
}

// beyond goes on where a page is full of events that only look alike: with a
// larger page, and else without the index of tags. It returns where to continue,
// or that everything is done.
func (w *walk) beyond(
	ctx context.Context, q nostr.Filter, until *nostr.Timestamp,
) (next *nostr.Timestamp, done bool, err error) {
	if limit := min(w.profile.exempt, w.batch); limit > w.profile.page {
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
	q.Tags = nil
	return nil, true, w.pages(ctx, q, until)
}
