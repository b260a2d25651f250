package eventstoreadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

var (
	// errStop ends a walk whose consumer has stopped.
	errStop = errors.New("stop")
	// errAlike means that a page has only events with longer tag values.
	errAlike = errors.New("answers do not match the query")
)

const (
	// idsPerQuery is in ids, clientIDs the same for a client.
	idsPerQuery, clientIDs = 256, 16
	// clientPage is in events of one query for a client.
	clientPage = 64
	// fewEvents is the size of the first page, because badger allocates memory for twice the limit.
	fewEvents = 32
	// fewVersions is the size of the first page of a query with kindOfNone. Badger may crash above.
	fewVersions = 24
	// leastFirst is added to the size of the first query of several look-ups.
	leastFirst = 4
	// larger is the factor by which a query without progress grows.
	larger = 4
	// maxSecond is in events of one second, clientSecond the same for a client.
	maxSecond, clientSecond = 1 << 18, 1 << 12
	// kindOfNone is unused. Without it badger and lmdb cut a query at the theoretical maximum of events.
	kindOfNone = math.MaxUint16
)

type walk struct {
	*guard
	match   *filters.Matcher
	since   *nostr.Timestamp
	until   *nostr.Timestamp
	seen    map[graspsync.EventID]struct{}
	yield   func(graspsync.Event) bool
	records bool
	client  bool
	page    int
	left    int // events and look-ups that may be read; 0 becomes no limit
	without func(graspsync.Event) bool
	newest  *newest
	missed  error
}

func (w *walk) run(ctx context.Context, f nostr.Filter) error {
	if f.Limit != 0 || f.LimitZero || f.Search != "" {
		return fmt.Errorf("%w: limit or search", ErrFilter)
	}
	ids, queries := plan(f, w.traits, w.client)
	w.page = w.traits.Page
	if w.client && !w.traits.Memory {
		w.page = min(w.page, clientPage)
	}
	want := f
	want.Tags = maps.Clone(f.Tags)
	maps.DeleteFunc(want.Tags, func(_ string, values []string) bool { return values == nil })
	w.match = filters.Compile([]nostr.Filter{want})
	if f.Since != nil && *f.Since > 0 {
		w.since = f.Since
	}
	if f.Until != nil && *f.Until < latest {
		w.until = f.Until
	}
	err := w.ids(ctx, ids)
	if err == nil {
		err = w.each(ctx, queries)
	}
	if errors.Is(err, errAlike) { // try authors and kinds instead of tags
		f.Tags = nil
		_, queries = plan(f, w.traits, w.client)
		err = w.each(ctx, queries)
	}
	return cmp.Or(err, w.missed)
}

func (w *walk) each(ctx context.Context, queries []nostr.Filter) error {
	size := min(w.page, fewEvents)
	if w.newest != nil {
		size = min(w.page, w.newest.most+1) // one more shows that their last second is complete
		if len(queries) > 1 {
			// Small first queries show the range of the newest events.
			size = min(size, 2*w.newest.most/len(queries)+leastFirst)
		}
	}
	for _, q := range queries {
		if err := w.pages(ctx, q, w.until, size); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) take(events []*nostr.Event) error {
	for _, e := range events {
		parsed, err := graspsync.ParseEvent(e)
		if err != nil {
			continue
		}
		if _, ok := w.seen[parsed.ID]; ok || e.Kind == kindVersion && !w.records || !w.match.Match(e) {
			continue
		}
		w.seen[parsed.ID] = struct{}{}
		if w.without != nil && w.without(parsed) {
			continue
		}
		if w.newest != nil {
			w.newest.add(e)
		} else if !w.yield(parsed) {
			return errStop
		}
	}
	if w.newest != nil && w.newest.full() && (w.since == nil || *w.since < w.newest.oldest()) {
		w.since = ptr(w.newest.oldest())
	}
	return nil
}

func (w *walk) ids(ctx context.Context, ids []string) error {
	size := min(idsPerQuery, w.page)
	if w.client && !w.traits.Memory {
		size = min(size, clientIDs)
	}
	for chunk := range slices.Chunk(ids, size) {
		if _, err := w.put(ctx, nostr.Filter{IDs: chunk, Limit: len(chunk)}, false); err != nil {
			return err
		}
	}
	return nil
}

// pages reads one look-up back in time, until no older event is needed.
func (w *walk) pages(ctx context.Context, q nostr.Filter, until *nostr.Timestamp, size int) error {
	if !w.traits.Memory && len(q.Tags) == 0 && nostr.GetTheoreticalLimit(q) >= 0 {
		events, err := w.ask(ctx, q, w.since, until, min(size, fewVersions))
		if err != nil || len(events) < min(size, fewVersions) {
			return err
		}
		q.Kinds = nil // with kinds, the backend cuts at the number of replaceable events that should exist
	}
	for until == nil || *until >= 0 && (w.since == nil || *until >= *w.since) && !w.newest.past(*until) {
		events, err := w.ask(ctx, q, w.since, until, size)
		if err != nil || len(events) < size {
			return err
		}
		low, ok := w.lowest(q, events)
		switch stuck := !ok || until != nil && low == *until; {
		case ok && w.newest.past(low):
			return nil
		case stuck && size < w.page: // all events of one second, or prefix matches only
		case !ok:
			if low, ok, err = w.beyond(ctx, q, until); err != nil || !ok {
				return err
			}
			until = &low
		case until == nil || low < *until:
			until = &low
		case low > *until:
			return fmt.Errorf("%w: it ignores until", ErrBackend)
		default:
			err := w.second(ctx, q, low)
			if err != nil && !errors.Is(err, ErrIncomplete) {
				return err
			}
			w.missed = cmp.Or(w.missed, err)
			until = ptr(low - 1)
		}
		if size *= larger; w.newest == nil {
			size = w.page
		}
		size = min(size, w.page)
	}
	return nil
}

func (w *walk) second(ctx context.Context, q nostr.Filter, at nostr.Timestamp) error {
	top := max(w.traits.Exempt, w.traits.Page)
	if top = min(top, maxSecond); w.newest != nil {
		top = min(top, clientSecond)
	}
	for limit := w.page; limit < top; {
		limit = min(larger*limit, top)
		events, err := w.ask(ctx, q, &at, &at, limit)
		if err != nil || len(events) < limit {
			return err
		}
		if low, ok := w.lowest(q, events); ok && low < at || w.newest.past(at-1) {
			return nil
		}
	}
	if w.newest == nil && w.traits.Prefixes && !fixed(q) { // most may be prefix matches
		return errAlike
	}
	return fmt.Errorf("%w: more than %d events at %d", ErrIncomplete, top, at)
}

// beyond repeats a page of prefix matches with a larger limit, and returns until when it is complete.
func (w *walk) beyond(ctx context.Context, q nostr.Filter, until *nostr.Timestamp) (low nostr.Timestamp, more bool, err error) {
	if limit := min(w.traits.Exempt, larger*w.page); limit > w.page {
		events, err := w.ask(ctx, q, w.since, until, limit)
		if err != nil || len(events) < limit {
			return 0, false, err
		}
		if low, ok := w.lowest(q, events); ok && (until == nil || low < *until) {
			return low, true, nil
		}
	}
	if q.Tags == nil {
		return 0, false, fmt.Errorf("%w: %w", ErrBackend, errAlike)
	}
	return 0, false, errAlike
}

func (w *walk) between(q nostr.Filter, since, until *nostr.Timestamp) nostr.Filter {
	if !w.traits.Memory && nostr.GetTheoreticalLimit(q) >= 0 {
		q.Kinds = append(slices.Clip(q.Kinds), kindOfNone)
	}
	if until != nil && *until < latest {
		q.Until = ptr(*until)
	}
	if since != nil && *since > 0 && (!w.traits.Prefixes || fixed(q)) {
		q.Since = ptr(*since)
		if w.traits.Memory {
			*q.Since--
		}
	}
	return q
}

func (w *walk) ask(ctx context.Context, q nostr.Filter, since, until *nostr.Timestamp, limit int) ([]*nostr.Event, error) {
	if w.left <= 0 {
		return nil, ErrTooMuch
	}
	q = w.between(q, since, until)
	q.Limit = limit
	events, err := w.put(ctx, q, limit > w.traits.Page)
	w.left -= 1 + len(events)
	return events, err
}

func (w *walk) put(ctx context.Context, q nostr.Filter, exempt bool) ([]*nostr.Event, error) {
	if w.client {
		ctx = forClient(ctx)
	}
	events, err := w.query(ctx, q, exempt)
	if err != nil {
		return nil, err
	}
	return events, w.take(events)
}

// lowest returns the time of the oldest exact match, because prefix matches may be out of order.
func (w *walk) lowest(q nostr.Filter, events []*nostr.Event) (low nostr.Timestamp, ok bool) {
	anywhere := w.traits.Prefixes && !fixed(q)
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
