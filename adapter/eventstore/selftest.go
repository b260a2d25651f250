package eventstoreadapter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// ErrTooFew is returned by [Store.SelfTest] when there are not enough events to
// see whether the backend gives more than a page. Nothing is wrong.
var ErrTooFew = errors.New("too few events for a self-test")

// SelfTest reads, and writes nothing: it checks on the events that are there that
// the backend answers as the Store was told it does. A page has as many events as
// were asked for; walking with pages of different sizes finds the same newest
// events; and each of a sample is found by its id, author, kind and tags. It reads
// about ten pages. An error wraps [ErrBackend], or [ErrTooFew] while there are
// fewer events than three pages: [Probe] needs none.
func (s *Store) SelfTest(ctx context.Context) error {
	page := s.reader.profile.page
	newest, err := s.reader.queryOnce(ctx, nostr.Filter{Limit: page}, false)
	if err != nil {
		return fmt.Errorf("self-test: %w", err)
	}
	sizes := []int{page, max(2, page/3)}
	var walks [2][]string
	enough := true
	for i, n := range sizes {
		var reached bool
		if walks[i], reached, err = s.newest(ctx, n, 3*page); err != nil {
			return fmt.Errorf("self-test: %w", err)
		}
		enough = enough && reached
	}
	if !slices.Equal(walks[0], walks[1]) {
		return fmt.Errorf("self-test: %w: pages of %d and of %d events give different events", ErrBackend, sizes[0], sizes[1])
	}
	if len(newest) < page && len(walks[0]) > len(newest) {
		return fmt.Errorf("self-test: %w: %d events where %d were asked for and there are %d: Config.PageSize is too large",
			ErrBackend, len(newest), page, len(walks[0]))
	}
	for i := 0; i < len(newest); i += max(1, len(newest)/16) {
		if err := s.findable(ctx, newest[i]); err != nil {
			return fmt.Errorf("self-test: %w", err)
		}
	}
	if !enough {
		return fmt.Errorf("self-test: %w", ErrTooFew)
	}
	return nil
}

// newest returns the ids of the n newest events, read in pages of a size, without
// those of the second that n ends in: which ones those are is nowhere said. It
// reports whether there are that many.
func (s *Store) newest(ctx context.Context, size, n int) (ids []string, reached bool, err error) {
	w := &walk{
		guard: s.reader, batch: s.cfg.fixed.BatchSize, want: compile(nostr.Filter{}),
		seen: make(map[graspsync.EventID]struct{}),
	}
	g := *s.reader
	g.profile.page, g.profile.trusted = size, false
	w.guard = &g
	var events []*nostr.Event
	w.yield = func(_ graspsync.EventID, e *nostr.Event) bool {
		events = append(events, e)
		return len(events) < n+size && (len(events) < n || e.CreatedAt == events[n-1].CreatedAt)
	}
	if err := w.pages(ctx, nostr.Filter{}, nil); err != nil && !errors.Is(err, errStop) {
		return nil, false, err
	}
	reached = len(events) >= n
	if reached {
		last := events[n-1].CreatedAt
		events = slices.DeleteFunc(events, func(e *nostr.Event) bool { return e.CreatedAt <= last })
	}
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids, reached, nil
}

// findable checks that an event is found by what it has.
func (s *Store) findable(ctx context.Context, e *nostr.Event) error {
	at := e.CreatedAt
	queries := []nostr.Filter{
		{IDs: []string{e.ID}},
		{Kinds: []int{e.Kind}, Since: &at, Until: &at},
		{Authors: []string{e.PubKey}, Since: &at, Until: &at},
	}
	for _, t := range e.Tags {
		if len(t) >= 2 && isLetter(t[0]) && t[1] != "" && len(queries) < 6 {
			queries = append(queries, nostr.Filter{Tags: nostr.TagMap{t[0]: {t[1]}}, Since: &at, Until: &at})
		}
	}
	for _, f := range queries {
		events, err := s.all(ctx, f)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events, func(o *nostr.Event) bool { return o.ID == e.ID }) {
			return fmt.Errorf("%w: event %s is not found by %s", ErrBackend, e.ID, f)
		}
	}
	return nil
}

// Probe stores events in a scratch backend and reads them back beyond its limits:
// a check of a kind of backend, its settings and cfg, without the embedder's data.
// The backend must be empty and is left with events in it. An error wraps
// [ErrBackend] or [ErrIncomplete].
func Probe(ctx context.Context, scratch eventstore.Store, cfg Config) error {
	s, err := New(scratch, cfg)
	if err != nil {
		return err
	}
	n := 3*s.reader.profile.page + 7
	for chunk := range slices.Chunk(probes(n), 500) {
		outcomes, err := s.Save(ctx, chunk)
		if err != nil {
			return fmt.Errorf("probing: %w", err)
		}
		for _, o := range outcomes {
			if o.Result != graspsync.Stored {
				return fmt.Errorf("probing: %w: an event was %s, not stored: %w", ErrBackend, o.Result, o.Err)
			}
		}
	}
	for _, f := range []nostr.Filter{
		{}, {Kinds: []int{1}}, {Authors: []string{probeAuthor(0), probeAuthor(1)}},
		{Tags: nostr.TagMap{"t": {"probe"}}}, {Since: ptr(nostr.Timestamp(1)), Until: ptr(nostr.Timestamp(math.MaxInt32))},
	} {
		events, err := s.all(ctx, f)
		if err != nil {
			return fmt.Errorf("probing: %w", err)
		}
		if len(events) != n {
			return fmt.Errorf("probing: %w: %d of %d events by %s", ErrBackend, len(events), n, f)
		}
	}
	if err := s.SelfTest(ctx); err != nil && !errors.Is(err, ErrTooFew) {
		return err
	}
	return nil
}

func probeAuthor(i int) string { return strings.Repeat(fmt.Sprintf("%02x", i+1), 32) }

func probes(n int) []graspsync.Incoming {
	in := make([]graspsync.Incoming, n)
	for i := range in {
		e := &nostr.Event{
			PubKey: probeAuthor(i % 2), Kind: 1, CreatedAt: nostr.Timestamp(1_000_000 + i/3),
			Tags: nostr.Tags{{"t", "probe"}}, Content: fmt.Sprint("probe ", i), Sig: strings.Repeat("0", 128),
		}
		e.ID = e.GetID()
		in[i].Event = e
	}
	return in
}
