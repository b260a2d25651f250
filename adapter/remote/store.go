package remoteadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Sentinels of a [Store].
var (
	// ErrIncomplete means that the relay has more events than it returned.
	ErrIncomplete = relaysync.ErrIncomplete
	// ErrRefused is wrapped for an event that the relay refused, or a request that it closed.
	ErrRefused = errors.New("refused by the relay")
	errLost    = errors.New("connection lost")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("store is closed")
)

// Config is the configuration of a [Store].
type Config struct {
	// Identity is that of the relay, for requests to vanish (NIP-62).
	Identity nip34.Identity

	fixed constants
}

type constants struct {
	timeout   time.Duration // of one request: a page, or the OK of an event
	pageLimit int           // requested events per page
}

const publishing = 64 // events whose OK is awaited

// Store is a relay in another process. It is safe for concurrent use and connects on demand.
type Store struct {
	// set by New, read-only
	relay     graspsync.RelayURL
	transport relaysync.Transport
	cfg       Config
	end       context.CancelFunc
	open      context.Context //nolint:containedctx // that of no call: it ends with Close

	turn chan struct{} // its one slot is held by an exchange
	// guarded by turn
	conn   relaysync.Conn // nil: none
	sent   bool           // the exchange has sent a request
	number int            // of requests
}

var _ relaysync.Store = (*Store)(nil)

// New returns a Store without connecting. The error names every invalid argument.
func New(relay graspsync.RelayURL, transport relaysync.Transport, cfg Config) (*Store, error) {
	var errs []error
	if relay.IsZero() {
		errs = append(errs, errors.New("relay is empty"))
	}
	if transport == nil {
		errs = append(errs, errors.New("transport is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("remote adapter: %w", err)
	}
	cfg.fixed.timeout = cmp.Or(cfg.fixed.timeout, 30*time.Second)
	cfg.fixed.pageLimit = cmp.Or(cfg.fixed.pageLimit, filters.DefaultLimit)
	s := &Store{relay: relay, transport: transport, cfg: cfg, turn: make(chan struct{}, 1)}
	s.open, s.end = context.WithCancel(context.Background())
	return s, nil
}

// maxLosses is the number of consecutive events at which the relay disconnects before Save gives up.
const maxLosses = 3

// Save implements [relaysync.Store]. If the relay disconnects, events without an answer are published again
// one by one. An error means that the relay cannot be reached.
func (s *Store) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out := make([]graspsync.Outcome, 0, len(events))
	for chunk := range slices.Chunk(events, publishing) {
		part, err := s.publish(ctx, chunk)
		if err != nil {
			return nil, err
		}
		cuts := 0
		for i := range part {
			if !errors.Is(part[i].Err, errLost) || len(chunk) == 1 || cuts == maxLosses {
				continue
			}
			again, err := s.publish(ctx, chunk[i:i+1])
			if err != nil {
				break // the outcomes of the other lost events stay Failed
			}
			part[i] = again[0]
			if cuts++; !errors.Is(part[i].Err, errLost) {
				cuts = 0
			}
		}
		out = append(out, part...)
	}
	return out, nil
}

func outcomeOf(accepted bool, text string) graspsync.Outcome {
	word, _, _ := strings.Cut(strings.ToLower(text), ":")
	lower := strings.ToLower(text)
	refused := fmt.Errorf("%w: %q", ErrRefused, text)
	switch {
	case word == "replaced" || (!accepted || word == "duplicate") && strings.Contains(lower, "newer"):
		return graspsync.Outcome{Result: graspsync.Superseded}
	case word == "deleted", !accepted && strings.Contains(lower, "deleted"):
		return graspsync.Outcome{Result: graspsync.Deleted}
	case word == "duplicate":
		return graspsync.Outcome{Result: graspsync.Duplicate}
	case accepted:
		return graspsync.Outcome{Result: graspsync.Stored}
	case word == "error", word == "rate-limited", word == "auth-required":
		return graspsync.Outcome{Result: graspsync.Failed, Err: refused}
	}
	return graspsync.Outcome{Result: graspsync.Refused, Err: refused}
}

// Has implements [relaysync.Store].
func (s *Store) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found := make(map[graspsync.EventID]bool, len(ids))
	for _, f := range filters.ByID(ids, filters.MaxValues) {
		for ev, err := range s.Events(ctx, f) {
			if err != nil {
				return nil, err
			}
			found[ev.ID] = true
		}
	}
	out := make([]bool, len(ids))
	for i, id := range ids {
		out[i] = found[id]
	}
	return out, nil
}

// Keys implements [relaysync.Store].
func (s *Store) Keys(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return func(yield func(graspsync.EventKey, error) bool) {
		for ev, err := range s.Events(ctx, filter) {
			var st graspsync.EventKey
			if err == nil {
				st = ev.Key()
			}
			if !yield(st, err) || err != nil {
				return
			}
		}
	}
}

// readings is in passes over a filter, because an event that is saved during a pass looks omitted.
const readings = 3

// Events implements [relaysync.Store].
func (s *Store) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		given := make(map[graspsync.EventID]struct{})
		for range readings {
			complete, err := s.walk(ctx, filter, func(ev graspsync.Event) bool {
				_, again := given[ev.ID]
				given[ev.ID] = struct{}{}
				return again || yield(ev, nil)
			})
			if errors.Is(err, errStopped) || err == nil && complete {
				return
			}
			if err != nil {
				yield(graspsync.Event{}, fmt.Errorf("reading from %s: %w", s.relay, err))
				return
			}
		}
		yield(graspsync.Event{}, fmt.Errorf("reading from %s: %w", s.relay, ErrIncomplete))
	}
}

var errStopped = errors.New("stopped") // by the consumer

func (s *Store) walk(ctx context.Context, filter nostr.Filter, give func(graspsync.Event) bool) (complete bool, err error) {
	match := filters.Compile([]nostr.Filter{filter})
	walk := filters.NewWalk(filter, filters.WalkStart{Limit: s.cfg.fixed.pageLimit, PageSize: s.cfg.fixed.pageLimit})
	for !walk.Done() {
		p, err := s.page(ctx, walk.Next())
		if err != nil {
			return false, err
		}
		fresh := slices.DeleteFunc(p.events, func(ev graspsync.Event) bool {
			return !walk.Saw(ev.ID, ev.CreatedAt) || !match.Match(ev.Event)
		})
		walk.End(p.finish, p.more)
		for _, ev := range fresh {
			if !give(ev) {
				return false, errStopped
			}
		}
	}
	return walk.Pages() == 0 || walk.Complete(), ctx.Err()
}

// Deleted implements [relaysync.Store]. Only the relay knows deletions of newer versions.
func (s *Store) Deleted(ctx context.Context, event graspsync.Event) (bool, error) {
	if err := ctx.Err(); err != nil || event.IsZero() {
		return false, err
	}
	t := nip34.NewTombstones(s.cfg.Identity)
	for _, f := range tombstonesOf(event) {
		for ev, err := range s.Events(ctx, f) {
			if err != nil {
				return false, err
			}
			if t.Add(ev); t.Covers(event) {
				return true, nil
			}
		}
	}
	return false, nil
}

func tombstonesOf(event graspsync.Event) []nostr.Filter {
	by := nostr.Filter{Authors: []string{event.Event.PubKey}}
	gone := by
	gone.Kinds, gone.Since = []int{graspsync.KindVanish}, &event.CreatedAt
	if event.Kind == graspsync.KindDeletion {
		return []nostr.Filter{gone}
	}
	by.Kinds = []int{graspsync.KindDeletion}
	byID := by
	byID.Tags = nostr.TagMap{"e": {event.Event.ID}}
	out := []nostr.Filter{byID, gone}
	if addr, ok := event.Address(); ok {
		by.Tags, by.Since = nostr.TagMap{"a": {addr.String()}}, &event.CreatedAt
		out = append(out, by)
	}
	return out
}

// Remove implements [relaysync.Store]. It returns [relaysync.ErrCannotRemove].
func (s *Store) Remove(context.Context, graspsync.Event) error {
	return fmt.Errorf("remote adapter: %w", relaysync.ErrCannotRemove)
}
