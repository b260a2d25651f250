package eventstoreadapter

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/asker"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

const stripes = 64

// Store is a [relaysync.Store] over a backend. It is created by [New] and safe for concurrent use.
type Store struct {
	// set by New, read-only
	cfg Config
	*guard

	authors [stripes]sync.Mutex // each guards the stored events of its authors
	// removing is held for each removal, because badger counts removals without a lock.
	removing sync.Mutex
}

var _ relaysync.Store = (*Store)(nil)

// New returns a Store over an initialized backend, which the caller closes. The error wraps [ErrInUse], or
// [ErrUnsupported] unless the backend is or embeds badger, lmdb or slicestore.
func New(backend eventstore.Store, cfg Config) (*Store, error) {
	if backend == nil {
		return nil, errors.New("event store: no backend")
	}
	t, err := traitsOf(backend)
	if err != nil {
		return nil, fmt.Errorf("event store: %w", err)
	}
	lock, err := lockFolder(t.Folder)
	if err != nil {
		return nil, fmt.Errorf("event store: %w", err)
	}
	return &Store{cfg: cfg, guard: newGuard(backend, t, lock)}, nil
}

// Close waits up to 10 s for calls in progress. Later calls fail with ErrClosed. Call it before closing
// the backend.
func (s *Store) Close() error { return s.guard.close() }

// answer releases the slot when the events are read or ctx ends. A small answer is buffered.
func answer(ctx context.Context, events []*nostr.Event, slot *limit.Slot) chan *nostr.Event {
	if len(events) <= 1 || size(events) <= smallAnswer {
		ch := make(chan *nostr.Event, len(events))
		for _, e := range events {
			ch <- e
		}
		close(ch)
		slot.Release()
		return ch
	}
	ch := make(chan *nostr.Event)
	go func() {
		defer close(ch)
		defer slot.Release()
		tick := time.NewTicker(slowAfter)
		defer tick.Stop()
		read := 0
		for _, e := range events {
			for sent := false; !sent; {
				select {
				case ch <- e:
					sent = true
					read += bytesOf(e)
				case <-tick.C:
					if read < slowBytes && slot.HasWaiter() {
						asker.Disconnect(ctx)
					}
					read = 0
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return ch
}

// PageSize returns the maximum of events of one query of the backend.
func (s *Store) PageSize() int { return s.traits.Page }

// Keys implements [relaysync.Store]. It costs as much as Events.
func (s *Store) Keys(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return func(yield func(graspsync.EventKey, error) bool) {
		for e, err := range s.Events(ctx, filter) {
			if err != nil {
				yield(graspsync.EventKey{}, err)
			} else if !yield(e.Key(), nil) {
				return
			}
		}
	}
}

// Events implements [relaysync.Store].
func (s *Store) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		err := s.walk(ctx, filter, &walk{yield: func(e graspsync.Event) bool { return yield(e, nil) }})
		if err != nil {
			yield(graspsync.Event{}, fmt.Errorf("reading events: %w", err))
		}
	}
}

func (s *Store) walk(ctx context.Context, f nostr.Filter, w *walk) error {
	w.guard, w.seen = s.guard, make(map[graspsync.EventID]struct{})
	if w.left == 0 {
		w.left = math.MaxInt
	}
	err := ctx.Err()
	if err == nil {
		err = w.run(ctx, f)
	}
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// all returns the matching events, on demand with the records of versions.
func (s *Store) all(ctx context.Context, f nostr.Filter, records bool) (events []graspsync.Event, err error) {
	err = s.walk(ctx, f, &walk{records: records, yield: func(e graspsync.Event) bool {
		events = append(events, e)
		return true
	}})
	return events, err
}

func (s *Store) stored(ctx context.Context, ids []graspsync.EventID) (events []graspsync.Event, has map[graspsync.EventID]bool, err error) {
	texts := make([]string, len(ids)) // not nil, so that no ids match nothing
	for i, id := range ids {
		texts[i] = id.String()
	}
	events, err = s.all(ctx, nostr.Filter{IDs: texts}, false)
	has = make(map[graspsync.EventID]bool, len(events))
	for _, e := range events {
		has[e.ID] = true
	}
	return events, has, err
}

// Has implements [relaysync.Store].
func (s *Store) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	_, found, err := s.stored(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("looking up ids: %w", err)
	}
	has := make([]bool, len(ids))
	for i, id := range ids {
		has[i] = found[id]
	}
	return has, nil
}

// Deleted implements [relaysync.Store].
func (s *Store) Deleted(ctx context.Context, event graspsync.Event) (bool, error) {
	if event.IsZero() {
		return false, ctx.Err()
	}
	t, err := s.tombstonesOf(ctx, []graspsync.Event{event})
	if err != nil {
		return false, fmt.Errorf("looking up deletions: %w", err)
	}
	return t.Covers(event), nil
}

// Save implements [relaysync.Store].
func (s *Store) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	outcomes := make([]graspsync.Outcome, len(events))
	var storable []graspsync.Event
	for i, in := range events {
		if err := s.Storable(in.Event); err != nil {
			outcomes[i] = graspsync.Outcome{Result: graspsync.Refused, Err: err}
		} else {
			storable = append(storable, in.Event)
		}
	}
	if len(storable) == 0 {
		return outcomes, ctx.Err()
	}
	defer s.lock(storable)()
	b, err := s.prepare(ctx, storable)
	if err != nil {
		return nil, fmt.Errorf("saving events: %w", err)
	}
	for i, in := range events {
		if outcomes[i].Err != nil {
			continue
		}
		result, err := b.save(ctx, in.Event)
		if err != nil {
			result = graspsync.Failed
		}
		outcomes[i] = graspsync.Outcome{Result: result, Err: err}
	}
	if err := s.sync(ctx, outcomes); err != nil {
		return nil, fmt.Errorf("saving events: %w", err)
	}
	return outcomes, nil
}

func (s *Store) lock(events []graspsync.Event) (unlock func()) {
	var wanted [stripes]bool
	for _, e := range events {
		wanted[stripe(e.PubKey)] = true
	}
	var locked []*sync.Mutex
	for i := range wanted {
		if wanted[i] {
			s.authors[i].Lock()
			locked = append(locked, &s.authors[i])
		}
	}
	return func() {
		for _, mu := range locked {
			mu.Unlock()
		}
	}
}

func stripe(author graspsync.PubKey) int { return int(author[31]) % stripes }

type syncer interface{ Sync() error }

func (s *Store) sync(ctx context.Context, outcomes []graspsync.Outcome) error {
	backend, ok := s.backend.(syncer)
	if !ok || s.cfg.NoSync || !slices.ContainsFunc(outcomes, func(o graspsync.Outcome) bool {
		return o.Result == graspsync.Stored || o.Result == graspsync.Duplicate || o.Result == graspsync.Deleted
	}) {
		return nil
	}
	// Not canceled, because the events are stored already.
	return s.change(context.WithoutCancel(ctx), "syncing the backend", func(context.Context) error { return backend.Sync() })
}

// MaxContent returns the maximum content of an event in bytes, or 0 for no limit.
func (s *Store) MaxContent() int {
	if s.traits.Memory {
		return 0
	}
	return math.MaxUint16
}

// Storable returns an error that wraps [ErrUnstorable] if the backend cannot store an event unchanged.
func (s *Store) Storable(e graspsync.Event) error {
	if e.IsZero() {
		return fmt.Errorf("%w: %w: none", ErrUnstorable, graspsync.ErrEvent)
	}
	sig, err := hex.DecodeString(e.Sig)
	switch {
	case nostr.IsEphemeralKind(e.Kind):
		return fmt.Errorf("%w: ephemeral kind %d", ErrUnstorable, e.Kind)
	case err != nil, len(sig) != 64:
		return fmt.Errorf("%w: malformed signature", ErrUnstorable)
	case e.Kind < 0 || e.Kind > math.MaxUint16:
		return fmt.Errorf("%w: kind %d", ErrUnstorable, e.Kind)
	case e.CreatedAt < 0 || e.CreatedAt >= latest:
		return fmt.Errorf("%w: created_at %d", ErrUnstorable, e.CreatedAt)
	case !s.traits.Memory && !isCompact(e.Event):
		return fmt.Errorf("%w: more than 64 KiB in a text, 255 items in a tag, or 65,535 tags", ErrUnstorable)
	case s.traits.Fits != nil && !s.traits.Fits(e.Event):
		return fmt.Errorf("%w: too large, or text that the backend would change", ErrUnstorable)
	}
	return nil
}

func isCompact(e *nostr.Event) bool {
	isLong := func(text string) bool { return len(text) > math.MaxUint16 }
	return !isLong(e.Content) && len(e.Tags) <= math.MaxUint16 && !slices.ContainsFunc(e.Tags, func(t nostr.Tag) bool {
		return len(t) > math.MaxUint8 || slices.ContainsFunc(t, isLong)
	})
}

type batch struct {
	*Store
	have  map[graspsync.EventID]bool // stored ids
	tombs *nip34.Tombstones
}

func (s *Store) prepare(ctx context.Context, events []graspsync.Event) (b *batch, err error) {
	b = &batch{Store: s}
	ids := make([]graspsync.EventID, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	if _, b.have, err = s.stored(ctx, ids); err == nil {
		b.tombs, err = s.tombstonesOf(ctx, events)
	}
	return b, err
}

func (b *batch) save(ctx context.Context, e graspsync.Event) (graspsync.Result, error) {
	switch addr, ok := e.Address(); {
	case b.tombs.Covers(e):
		if err := b.removeVersions(ctx, e); err != nil {
			return 0, err
		}
		if b.have[e.ID] { // a crash interrupted the deletion
			return graspsync.Deleted, b.remove(ctx, e)
		}
		return graspsync.Deleted, nil
	case ok:
		return b.replace(ctx, e, addr)
	}
	result, err := b.put(ctx, e)
	if err == nil && b.removes(e) { // also again, because a crash may have interrupted it
		b.tombs.Add(e)
		err = b.removeCovered(ctx, e)
	}
	return result, err
}

func (b *batch) put(ctx context.Context, e graspsync.Event) (graspsync.Result, error) {
	if b.have[e.ID] {
		return graspsync.Duplicate, nil
	}
	result, err := b.write(ctx, e.Event)
	b.have[e.ID] = err == nil
	return result, err
}

func (s *Store) write(ctx context.Context, e *nostr.Event) (graspsync.Result, error) {
	result := graspsync.Stored
	err := s.change(ctx, "saving an event", func(ctx context.Context) error {
		err := s.backend.SaveEvent(ctx, e)
		if errors.Is(err, eventstore.ErrDupEvent) {
			result, err = graspsync.Duplicate, nil
		}
		return err
	})
	return result, err
}

func (b *batch) remove(ctx context.Context, e graspsync.Event) error {
	delete(b.have, e.ID)
	err := b.removeStored(ctx, e)
	if err == nil && b.cfg.Removed != nil && e.Kind != kindVersion {
		b.cfg.Removed(e)
	}
	return err
}

func (s *Store) removeStored(ctx context.Context, e graspsync.Event) error {
	s.removing.Lock()
	defer s.removing.Unlock()
	return s.change(ctx, "removing an event", func(ctx context.Context) error { return s.backend.DeleteEvent(ctx, e.Event) })
}

// change calls a backend that writes, without the end of ctx.
func (s *Store) change(ctx context.Context, what string, f func(context.Context) error) error {
	err := s.call(ctx, what, func() error {
		if err := f(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("%w: %w", ErrBackend, err)
		}
		return nil
	})
	s.wrote(ctx, err)
	return err
}

// Writable returns the error of the last write, within a minute, if three in a row failed.
func (s *Store) Writable() error { return s.writable() }

// replace saves a version if it is the newest, before it removes the older ones.
func (b *batch) replace(ctx context.Context, e graspsync.Event, addr graspsync.Address) (graspsync.Result, error) {
	versions, err := b.versions(ctx, addr.Author, addr)
	if err != nil {
		return 0, err
	}
	newest := e
	for _, v := range versions {
		if v.Key().Newer(newest.Key()) {
			newest = v
		}
	}
	result := graspsync.Superseded
	if newest.ID == e.ID {
		if result, err = b.put(ctx, e); err != nil {
			return result, err
		}
	}
	for _, v := range versions {
		if v.ID != newest.ID {
			err = errors.Join(err, b.remove(ctx, v))
		}
	}
	return result, err
}

func (s *Store) removes(e graspsync.Event) bool {
	return e.Kind == graspsync.KindDeletion || s.cfg.Identity.IsVanishRequest(e.Event)
}

func (b *batch) removeCovered(ctx context.Context, e graspsync.Event) error {
	targets, err := b.targets(ctx, e)
	if err != nil {
		return fmt.Errorf("reading the events to remove: %w", err)
	}
	for _, e := range targets {
		if !b.tombs.Covers(e) {
			continue
		}
		if err := b.removeVersions(ctx, e); err != nil {
			return err
		}
		if err := b.remove(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// kindVersion records a version whose id a deletion names, because the deletion does not contain the
// address, and older versions must stay deleted.
const kindVersion = 20_005

func versionRecord(addr graspsync.Address, e graspsync.Event) *nostr.Event {
	r := &nostr.Event{
		PubKey: e.Event.PubKey, Kind: kindVersion, CreatedAt: e.CreatedAt,
		Tags: nostr.Tags{{"a", addr.String()}, {"e", e.Event.ID}}, Sig: strings.Repeat("0", 128),
	}
	r.ID = r.GetID()
	return r
}

func versionOf(r graspsync.Event) (addr graspsync.Address, v graspsync.EventKey, ok bool) {
	a, e := r.Tags.Find("a"), r.Tags.Find("e")
	if r.Kind != kindVersion || a == nil || e == nil {
		return addr, v, false
	}
	addr, err := graspsync.ParseAddress(a[1])
	id, err2 := graspsync.ParseEventID(e[1])
	return addr, graspsync.EventKey{CreatedAt: r.CreatedAt, ID: id}, err == nil && err2 == nil
}

// removeVersions records a version that a deletion names by id, and removes the older ones.
func (b *batch) removeVersions(ctx context.Context, e graspsync.Event) error {
	addr, ok := e.Address()
	if !ok || !b.tombs.CoversID(e) || !b.tombs.AddVersion(addr, e.Key()) {
		return nil
	}
	versions, err := b.versions(ctx, addr.Author, addr)
	if err != nil {
		return err
	}
	for _, v := range versions {
		if v.ID != e.ID && b.tombs.Covers(v) {
			if err := b.remove(ctx, v); err != nil {
				return err
			}
		}
	}
	_, err = b.write(ctx, versionRecord(addr, e)) // last, so that a crash repeats everything
	return err
}

func (s *Store) targets(ctx context.Context, e graspsync.Event) ([]graspsync.Event, error) {
	if e.Kind == graspsync.KindVanish {
		return s.all(ctx, nostr.Filter{Authors: []string{e.Event.PubKey}, Until: &e.Event.CreatedAt}, true)
	}
	ids, at := nip34.DeletionTargets(e)
	named, _, err := s.stored(ctx, ids)
	if err != nil {
		return nil, err
	}
	events, err := s.versions(ctx, e.PubKey, at...)
	return append(named, events...), err
}

const fewAddresses = 16

// versions returns the stored events at addresses of one author. For the many addresses that a stranger
// may name, the author's events are read once.
func (s *Store) versions(ctx context.Context, author graspsync.PubKey, at ...graspsync.Address) ([]graspsync.Event, error) {
	wanted := make(map[graspsync.Address]bool, len(at))
	f := nostr.Filter{Authors: []string{author.String()}}
	var identifiers []string
	for _, a := range at {
		if nostr.IsAddressableKind(a.Kind) || nostr.IsReplaceableKind(a.Kind) && a.Identifier == "" {
			wanted[a] = true
			f.Kinds, identifiers = append(f.Kinds, a.Kind), append(identifiers, a.Identifier)
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	if len(wanted) <= fewAddresses && !slices.Contains(identifiers, "") { // no tag is needed for an empty one
		f.Tags = nostr.TagMap{"d": identifiers}
	}
	events, err := s.all(ctx, f, false)
	return slices.DeleteFunc(events, func(e graspsync.Event) bool {
		a, ok := e.Address()
		return !ok || !wanted[a]
	}), err
}

// Targets returns the stored events that a deletion names, also by ids of other authors.
func (s *Store) Targets(ctx context.Context, deletion graspsync.Event) ([]graspsync.Event, error) {
	if deletion.IsZero() || deletion.Kind != graspsync.KindDeletion {
		return nil, ctx.Err()
	}
	targets, err := s.targets(ctx, deletion)
	if err != nil {
		return nil, fmt.Errorf("reading the events to remove: %w", err)
	}
	return targets, nil
}

// Execute removes the events that a deletion or request to vanish names.
func (s *Store) Execute(ctx context.Context, event graspsync.Event) error {
	if event.IsZero() || !s.removes(event) {
		return fmt.Errorf("%w: removes nothing", ErrUnstorable)
	}
	defer s.lock([]graspsync.Event{event})()
	b := &batch{Store: s, tombs: nip34.NewTombstones(s.cfg.Identity)}
	b.tombs.Add(event)
	return b.removeCovered(ctx, event)
}

// Remove removes an event from the backend, for moderation or expiry. A missing event is no error.
func (s *Store) Remove(ctx context.Context, event graspsync.Event) error {
	if event.IsZero() {
		return nil
	}
	defer s.lock([]graspsync.Event{event})()
	return s.removeStored(ctx, event)
}

const lookUpAtOnce = 100

func (s *Store) tombstonesOf(ctx context.Context, events []graspsync.Event) (*nip34.Tombstones, error) {
	t := nip34.NewTombstones(s.cfg.Identity)
	for chunk := range slices.Chunk(events, lookUpAtOnce) {
		var authors, ids, at []string
		for _, e := range chunk {
			authors = append(authors, e.Event.PubKey)
			if e.Kind == graspsync.KindDeletion {
				continue
			}
			ids = append(ids, e.Event.ID)
			if addr, ok := e.Address(); ok {
				at = append(at, addr.String())
			}
		}
		slices.Sort(authors)
		authors = slices.Compact(authors)
		var versions []string // ids of versions at the addresses
		read := func(f nostr.Filter) error {
			f.Authors = authors
			found, err := s.all(ctx, f, true)
			for _, d := range found {
				if addr, v, ok := versionOf(d); ok && t.AddVersion(addr, v) {
					versions = append(versions, v.ID.String())
				}
				t.Add(d)
			}
			return err
		}
		tagged := func(tag string, values []string) error {
			if len(values) == 0 {
				return nil
			}
			return read(nostr.Filter{Kinds: []int{graspsync.KindDeletion, kindVersion}, Tags: nostr.TagMap{tag: values}})
		}
		err := errors.Join(read(nostr.Filter{Kinds: []int{graspsync.KindVanish}}), tagged("e", ids), tagged("a", at))
		if err = errors.Join(err, tagged("e", versions)); err != nil {
			return t, err
		}
	}
	return t, ctx.Err()
}
