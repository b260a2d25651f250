package eventstoreadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"
)

const (
	// maxSecond is the most events of one second that are read in one query.
	maxSecond = 1 << 18
	// maxNewest is the same where a client's question is answered.
	maxNewest = 1 << 12
	// maxNarrowed is how many queries one second may cost.
	maxNarrowed = 4000
)

// second reads one second that holds more than a page: at once where the backend
// gives that many, and else in parts.
func (w *walk) second(ctx context.Context, q nostr.Filter, at nostr.Timestamp) error {
	top, by := min(max(w.profile.exempt, w.profile.page), maxSecond), 4
	if w.newest != nil { // it is whole events that are read, of which nothing is known
		top, by = min(top, maxNewest), 2
	}
	for limit := max(w.batch, 2*w.page); ; limit *= by {
		limit = min(limit, top)
		if limit <= w.page {
			break
		}
		events, err := w.ask(ctx, q, &at, &at, limit)
		if err == nil {
			err = w.take(events)
		}
		if err != nil || len(events) < limit {
			return err
		}
		if low, ok := w.lowest(q, events); ok && low < at || w.newest.past(at-1) {
			return nil
		}
		if limit == top {
			break
		}
	}
	if w.newest != nil { // the rest of time is worth more than one second
		return fmt.Errorf("%w: more than %d events at %d", ErrIncomplete, top, at)
	}
	if w.profile.prefixes && !fixed(q) {
		q.Tags = nil // counts of what only looks alike prove nothing
	}
	return w.part(ctx, q, at)
}

// part reads one second that is more than a page of q. Lists are halved; what
// can't be is searched.
func (w *walk) part(ctx context.Context, q nostr.Filter, at nostr.Timestamp) (missed error) {
	if single(q) {
		return w.search(ctx, q, at)
	}
	a, b := halve(q, q)
	for _, half := range []nostr.Filter{a, b} {
		events, err := w.ask(ctx, half, &at, &at, w.page)
		if err == nil {
			err = w.take(events)
		}
		if err == nil && len(events) >= w.page {
			err = w.part(ctx, half, at)
		}
		switch {
		case errors.Is(err, ErrIncomplete): // the other half may still be read
			missed = cmp.Or(missed, err)
		case err != nil:
			return err
		}
	}
	return missed
}

// search is what finds the events of one second of which a query gives only some.
type search struct {
	*walk
	at      nostr.Timestamp
	found   map[string]*nostr.Event
	want    int // how many there are
	queries int
}

// search looks for more kinds, authors and tag values among what it found, until
// it has as many events as the backend counts.
func (w *walk) search(ctx context.Context, q nostr.Filter, at nostr.Timestamp) error {
	if !w.counts() {
		return fmt.Errorf("%w: more than %d events at %d and no count of them", ErrIncomplete, w.page, at)
	}
	s := &search{walk: w, at: at, found: make(map[string]*nostr.Event)}
	for before := -1; len(s.found) > before; {
		before = len(s.found)
		counted := w.bounded(q, nil, &at)
		counted.Since = ptr(at)
		if w.profile.memory {
			*counted.Since-- // count adds it again
		}
		var err error
		if s.want, err = w.count(ctx, counted); err != nil {
			return err
		}
		err = s.narrow(ctx, q, byKind)
		if errors.Is(err, ErrIncomplete) {
			return cmp.Or(s.yieldFound(), err)
		}
		if err != nil {
			return err
		}
		if len(s.found) >= s.want {
			return s.yieldFound()
		}
	}
	if err := s.yieldFound(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %d of %d events at %d", ErrIncomplete, len(s.found), s.want, at)
}

func (s *search) yieldFound() error {
	events := make([]*nostr.Event, 0, len(s.found))
	for _, e := range s.found {
		events = append(events, e)
	}
	return s.take(events)
}

// dimension is what a query is narrowed by.
type dimension uint8

const (
	byKind dimension = iota
	byAuthor
	byTag
	byNothing
)

// narrow asks q, and where the answer is full, q with each value of the next
// dimension that is known.
func (s *search) narrow(ctx context.Context, q nostr.Filter, next dimension) error {
	if s.queries++; s.queries > maxNarrowed {
		return fmt.Errorf("%w: %d of %d events at %d after %d queries", ErrIncomplete, len(s.found), s.want, s.at, maxNarrowed)
	}
	events, err := s.ask(ctx, q, &s.at, &s.at, s.page)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.CreatedAt == s.at && q.MatchesIgnoringTimestampConstraints(e) {
			s.found[e.ID] = e
		}
	}
	if len(events) < s.page || next == byNothing {
		return nil
	}
	for _, narrower := range s.narrower(q, next) {
		if len(s.found) >= s.want {
			return nil
		}
		if err := s.narrow(ctx, narrower, next+1); err != nil {
			return err
		}
	}
	return nil
}

// narrower returns q with each value of a dimension that an event found has, or q
// itself if it is as narrow as can be in that dimension.
func (s *search) narrower(q nostr.Filter, d dimension) []nostr.Filter {
	if d == byKind && q.Kinds != nil || d == byAuthor && q.Authors != nil {
		return []nostr.Filter{q}
	}
	type value struct {
		kind   int
		author string
		tag    [2]string
	}
	seen := make(map[value]bool)
	var list []nostr.Filter
	add := func(v value, n nostr.Filter) {
		if !seen[v] {
			seen[v] = true
			list = append(list, n)
		}
	}
	for _, e := range s.found {
		if !q.MatchesIgnoringTimestampConstraints(e) {
			continue
		}
		n := q
		switch d {
		case byKind:
			n.Kinds = []int{e.Kind}
			add(value{kind: e.Kind}, n)
		case byAuthor:
			n.Authors = []string{e.PubKey}
			add(value{author: e.PubKey}, n)
		default:
			for _, t := range e.Tags {
				if len(t) >= 2 && q.Tags[t[0]] == nil && s.profile.indexed(t[0], t[1]) {
					n.Tags = withTag(q.Tags, t[0], []string{t[1]})
					add(value{tag: [2]string{t[0], t[1]}}, n)
				}
			}
		}
	}
	return list
}
