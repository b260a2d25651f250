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

// New returns a Store over an initialized backend, which the caller closes. The error wraps
// [ErrUnsupported] if the backend is not, and does not embed, badger, lmdb or slicestore, and
// [ErrInUse] if another Store has the lmdb.
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

// Close ends the use of the backend. It waits up to 10 s for reads and writes. Later calls fail
// with ErrClosed. Call Close before closing the backend, because badger panics if it is closed
// during a read.
func (s *Store) Close() error { return s.guard.close() }

// answer returns a channel of events, and releases the slot when they are read or ctx ends. A small
// answer is buffered, because a caller may not read to the end.
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
					if read < slowBytes && slot.Wanted() {
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

// PageSize returns the maximum number of events of one query of the backend, also for clients.
func (s *Store) PageSize() int { return s.traits.Page }

// Keys implements [relaysync.Store]. It costs as much as Events.
func (s *Store) Keys(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	return func(yield func(graspsync.EventKey, error) bool) {
		err := s.walk(ctx, filter, func(e graspsync.Event) bool {
			return yield(e.Key(), nil)
		})
		if err != nil {
			yield(graspsync.EventKey{}, fmt.Errorf("reading keys: %w", err))
		}
	}
}

// Events implements [relaysync.Store].
func (s *Store) Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		err := s.walk(ctx, filter, func(e graspsync.Event) bool { return yield(e, nil) })
		if err != nil {
			yield(graspsync.Event{}, fmt.Errorf("reading events: %w", err))
		}
	}
}

func (s *Store) walk(
	ctx context.Context, f nostr.Filter, yield func(graspsync.Event) bool,
) error {
	return s.walkAs(ctx, f, false, yield)
}

func (s *Store) walkAs(ctx context.Context, f nostr.Filter, records bool, yield func(graspsync.Event) bool) error {
	return s.walkBy(ctx, f, &walk{yield: yield, records: records})
}

func (s *Store) walkBy(ctx context.Context, f nostr.Filter, w *walk) error {
	w.guard, w.seen = s.guard, make(map[graspsync.EventID]struct{})
	err := ctx.Err()
	if err == nil {
		err = w.run(ctx, f)
	}
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func (s *Store) all(ctx context.Context, f nostr.Filter) ([]graspsync.Event, error) {
	var events []graspsync.Event
	err := s.walk(ctx, f, func(e graspsync.Event) bool {
		events = append(events, e)
		return true
	})
	return events, err
}

// Has implements [relaysync.Store].
func (s *Store) Has(ctx context.Context, ids []graspsync.EventID) ([]bool, error) {
	has := make([]bool, len(ids))
	if len(ids) == 0 {
		return has, ctx.Err()
	}
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	found := make(map[graspsync.EventID]struct{}, len(ids))
	err := s.walk(ctx, nostr.Filter{IDs: texts}, func(e graspsync.Event) bool {
		found[e.ID] = struct{}{}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("looking up ids: %w", err)
	}
	for i, id := range ids {
		_, has[i] = found[id]
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
	return t.Cover(event), nil
}

// Save implements [relaysync.Store].
func (s *Store) Save(ctx context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("saving events: %w", err)
	}
	b := &batch{Store: s, outcomes: make([]graspsync.Outcome, len(events))}
	for i, in := range events {
		if err := s.Storable(in.Event); err != nil {
			b.outcomes[i] = graspsync.Outcome{Result: graspsync.Refused, Err: err}
			continue
		}
		b.events = append(b.events, in.Event)
		b.places = append(b.places, i)
	}
	if len(b.events) == 0 {
		return b.outcomes, nil
	}
	defer s.lock(b.events)()
	if err := b.prepare(ctx); err != nil {
		return nil, fmt.Errorf("saving events: %w", err)
	}
	for i, e := range b.events {
		o := b.save(ctx, e)
		b.outcomes[b.places[i]] = o
	}
	if err := s.sync(ctx, b.outcomes); err != nil {
		return nil, fmt.Errorf("saving events: %w", err)
	}
	return b.outcomes, nil
}

func (s *Store) lock(events []graspsync.Event) (unlock func()) {
	var wanted [stripes]bool
	for _, e := range events {
		wanted[stripe(e.PubKey)] = true
	}
	for i := range wanted {
		if wanted[i] {
			s.authors[i].Lock()
		}
	}
	return func() {
		for i := range wanted {
			if wanted[i] {
				s.authors[i].Unlock()
			}
		}
	}
}

func stripe(author graspsync.PubKey) int { return int(author[31]) % stripes }

// syncer is implemented by backends whose writes are not durable immediately.
type syncer interface{ Sync() error }

func (s *Store) sync(ctx context.Context, outcomes []graspsync.Outcome) error {
	backend, ok := s.backend.(syncer)
	if !ok || s.cfg.NoSync || !slices.ContainsFunc(outcomes, func(o graspsync.Outcome) bool {
		return o.Result == graspsync.Stored || o.Result == graspsync.Duplicate || o.Result == graspsync.Deleted
	}) {
		return nil
	}
	// Not canceled, because the events are stored already.
	return s.call(context.WithoutCancel(ctx), "syncing the backend", func() error {
		if err := backend.Sync(); err != nil {
			return fmt.Errorf("%w: %w", ErrBackend, err)
		}
		return nil
	})
}

// MaxContent returns the maximum length of the content of an event in bytes, or 0 if the backend
// has no limit.
func (s *Store) MaxContent() int {
	if s.traits.Memory {
		return 0
	}
	return math.MaxUint16
}

// Storable returns nil if the backend can store an event unchanged. Otherwise the error wraps
// [ErrUnstorable].
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
	case s.MaxContent() > 0 && len(e.Content) > s.MaxContent():
		return fmt.Errorf("%w: the content has %d bytes, and the backend keeps at most %d", ErrUnstorable, len(e.Content), s.MaxContent())
	case s.traits.Fits != nil && !s.traits.Fits(e.Event):
		return fmt.Errorf("%w: too large, or text that the backend would change", ErrUnstorable)
	case !s.traits.Memory:
		return compactable(e.Event)
	}
	return nil
}

func compactable(e *nostr.Event) error {
	if len(e.Tags) > math.MaxUint16 {
		return fmt.Errorf("%w: %d tags, and the backend keeps at most %d", ErrUnstorable, len(e.Tags), math.MaxUint16)
	}
	for i, t := range e.Tags {
		if len(t) > math.MaxUint8 {
			return fmt.Errorf("%w: tags[%d] has %d items, and the backend keeps at most %d", ErrUnstorable, i, len(t), math.MaxUint8)
		}
		for _, value := range t {
			if len(value) > math.MaxUint16 {
				return fmt.Errorf("%w: a value of tags[%d] has %d bytes, and the backend keeps at most %d", ErrUnstorable, i, len(value), math.MaxUint16)
			}
		}
	}
	return nil
}

type batch struct {
	*Store
	events   []graspsync.Event // storable events
	places   []int             // indexes of their outcomes
	outcomes []graspsync.Outcome
	have     map[graspsync.EventID]struct{} // stored ids
	tombs    *nip34.Tombstones
}

func (b *batch) prepare(ctx context.Context) (err error) {
	ids := make([]string, len(b.events))
	for i, e := range b.events {
		ids[i] = e.Event.ID
	}
	b.have = make(map[graspsync.EventID]struct{}, len(ids))
	err = b.walk(ctx, nostr.Filter{IDs: ids}, func(e graspsync.Event) bool {
		b.have[e.ID] = struct{}{}
		return true
	})
	if err == nil {
		b.tombs, err = b.tombstonesOf(ctx, b.events)
	}
	return err
}

func (b *batch) save(ctx context.Context, e graspsync.Event) graspsync.Outcome {
	result, err := b.try(ctx, e)
	if err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: err}
	}
	return graspsync.Outcome{Result: result}
}

func (b *batch) try(ctx context.Context, e graspsync.Event) (graspsync.Result, error) {
	_, have := b.have[e.ID]
	switch addr, ok := e.Address(); {
	case b.tombs.Cover(e):
		if err := b.removeVersions(ctx, b.tombs, e, b.forget); err != nil {
			return 0, err
		}
		if _, have = b.have[e.ID]; have { // a crash interrupted the deletion
			return graspsync.Deleted, b.remove(ctx, e)
		}
		return graspsync.Deleted, nil
	case ok:
		return b.replace(ctx, e, addr)
	case !have:
		stored, err := b.put(ctx, e)
		if err != nil || !b.removes(e) {
			return stored, err
		}
		return stored, b.execute(ctx, e)
	case b.removes(e):
		return graspsync.Duplicate, b.execute(ctx, e)
	}
	return graspsync.Duplicate, nil
}

func (b *batch) put(ctx context.Context, e graspsync.Event) (graspsync.Result, error) {
	result, err := b.write(ctx, e.Event)
	if err == nil {
		b.have[e.ID] = struct{}{}
	}
	return result, err
}

func (s *Store) write(ctx context.Context, e *nostr.Event) (graspsync.Result, error) {
	result := graspsync.Stored
	err := s.call(ctx, "saving an event", func() error {
		err := s.backend.SaveEvent(context.WithoutCancel(ctx), e)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, eventstore.ErrDupEvent):
			result = graspsync.Duplicate
			return nil
		}
		return fmt.Errorf("%w: %w", ErrBackend, err)
	})
	s.wrote(ctx, err)
	return result, err
}

func (b *batch) forget(e graspsync.Event) { delete(b.have, e.ID) }

func (b *batch) remove(ctx context.Context, e graspsync.Event) error {
	b.forget(e)
	return b.removeFor(ctx, e)
}

func (s *Store) removeFor(ctx context.Context, e graspsync.Event) error {
	err := s.removeStored(ctx, e)
	if err == nil && s.cfg.Removed != nil && e.Kind != kindVersion {
		s.cfg.Removed(e)
	}
	return err
}

func (s *Store) removeStored(ctx context.Context, e graspsync.Event) error {
	s.removing.Lock()
	defer s.removing.Unlock()
	err := s.call(ctx, "removing an event", func() error {
		if err := s.backend.DeleteEvent(context.WithoutCancel(ctx), e.Event); err != nil {
			return fmt.Errorf("%w: %w", ErrBackend, err)
		}
		return nil
	})
	s.wrote(ctx, err)
	return err
}

// Writable returns the error of the last write if three in a row failed, the last one within a
// minute.
func (s *Store) Writable() error { return s.writable() }

// replace saves a version if it is the newest, and then removes the older ones.
func (b *batch) replace(ctx context.Context, e graspsync.Event, addr graspsync.Address) (graspsync.Result, error) {
	versions, err := b.versions(ctx, addr)
	if err != nil {
		return 0, err
	}
	newest := e
	for _, v := range versions {
		if newer(v, newest) {
			newest = v
		}
	}
	result := graspsync.Superseded
	if newest.ID == e.ID {
		if _, have := b.have[e.ID]; have {
			result = graspsync.Duplicate
		} else if result, err = b.put(ctx, e); err != nil {
			return 0, err
		}
	}
	for _, v := range versions {
		if v.ID != newest.ID {
			err = errors.Join(err, b.remove(ctx, v))
		}
	}
	return result, err
}

func (s *Store) versions(ctx context.Context, addr graspsync.Address) ([]graspsync.Event, error) {
	f := nostr.Filter{Kinds: []int{addr.Kind}, Authors: []string{addr.Author.String()}}
	if nostr.IsAddressableKind(addr.Kind) && addr.Identifier != "" {
		f.Tags = nostr.TagMap{"d": {addr.Identifier}}
	}
	events, err := s.all(ctx, f)
	return slices.DeleteFunc(events, func(e graspsync.Event) bool {
		a, ok := e.Address()
		return !ok || a != addr
	}), err
}

func newer(a, b graspsync.Event) bool {
	return a.Key().Newer(b.Key())
}

func (s *Store) removes(e graspsync.Event) bool {
	return e.Kind == graspsync.KindDeletion || s.cfg.Identity.Vanishes(e.Event)
}

func (b *batch) execute(ctx context.Context, e graspsync.Event) error {
	b.tombs.Add(e)
	return b.removeCovered(ctx, b.tombs, e, b.forget)
}

func (s *Store) removeCovered(ctx context.Context, t *nip34.Tombstones, e graspsync.Event, removed func(graspsync.Event)) error {
	targets, err := s.targets(ctx, e)
	if err != nil {
		return fmt.Errorf("reading the events to remove: %w", err)
	}
	for _, e := range targets {
		if !t.Cover(e) {
			continue
		}
		if err := s.removeVersions(ctx, t, e, removed); err != nil {
			return err
		}
		if err := s.removeFor(ctx, e); err != nil {
			return err
		}
		removed(e)
	}
	return nil
}

// kindVersion is the kind of a record of a version whose id a deletion names, because the deletion
// does not contain the address, and older versions must stay deleted. No other stored event has an
// ephemeral kind.
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
func (s *Store) removeVersions(ctx context.Context, t *nip34.Tombstones, e graspsync.Event, removed func(graspsync.Event)) error {
	addr, ok := e.Address()
	if !ok || !t.Names(e) || !t.AddVersion(addr, e.Key()) {
		return nil
	}
	versions, err := s.versions(ctx, addr)
	if err != nil {
		return err
	}
	for _, v := range versions {
		if v.ID == e.ID || !t.Cover(v) {
			continue
		}
		if err := s.removeFor(ctx, v); err != nil {
			return err
		}
		removed(v)
	}
	_, err = s.write(ctx, versionRecord(addr, e)) // last, so that a crash repeats everything
	return err
}

func (s *Store) targets(ctx context.Context, e graspsync.Event) (targets []graspsync.Event, err error) {
	if e.Kind == graspsync.KindVanish {
		until := e.CreatedAt
		err = s.walkAs(ctx, nostr.Filter{Authors: []string{e.Event.PubKey}, Until: &until}, true, func(e graspsync.Event) bool {
			targets = append(targets, e)
			return true
		})
		return targets, err
	}
	ids, at := nip34.Deletes(e)
	if len(ids) > 0 {
		texts := make([]string, len(ids))
		for i, id := range ids {
			texts[i] = id.String()
		}
		if targets, err = s.all(ctx, nostr.Filter{IDs: texts}); err != nil {
			return nil, err
		}
	}
	events, err := s.versionsOf(ctx, e.Event.PubKey, at)
	return append(targets, events...), err
}

// fewAddresses is the maximum number of addresses that are looked up one by one.
const fewAddresses = 16

// versionsOf returns the stored events at addresses of one author. A stranger may name thousands, for which
// the author's events are read once.
func (s *Store) versionsOf(ctx context.Context, author string, at []graspsync.Address) (found []graspsync.Event, err error) {
	wanted := make(map[graspsync.Address]bool, len(at))
	f := nostr.Filter{Authors: []string{author}}
	for _, a := range at {
		if nostr.IsAddressableKind(a.Kind) || nostr.IsReplaceableKind(a.Kind) && a.Identifier == "" {
			wanted[a] = true
			f.Kinds = append(f.Kinds, a.Kind)
		}
	}
	if len(wanted) <= fewAddresses {
		for a := range wanted {
			versions, err := s.versions(ctx, a)
			if found = append(found, versions...); err != nil {
				return nil, err
			}
		}
		return found, nil
	}
	err = s.walk(ctx, f, func(e graspsync.Event) bool {
		if a, ok := e.Address(); ok && wanted[a] {
			found = append(found, e)
		}
		return true
	})
	return found, err
}

// Targets returns the stored events that a deletion names, by ids of any author and addresses of
// its author.
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

// Execute removes the events that a stored deletion or request to vanish names, for events that
// were not saved by Save.
func (s *Store) Execute(ctx context.Context, event graspsync.Event) error {
	if event.IsZero() || !s.removes(event) {
		return fmt.Errorf("%w: removes nothing", ErrUnstorable)
	}
	defer s.lock([]graspsync.Event{event})()
	t := nip34.NewTombstones(s.cfg.Identity)
	t.Add(event)
	return s.removeCovered(ctx, t, event, func(graspsync.Event) {})
}

// Remove removes an event from the backend, for moderation or expiry. A missing one is no error.
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
		ids, addrs := nostr.Filter{Kinds: []int{graspsync.KindDeletion}}, nostr.Filter{Kinds: []int{graspsync.KindDeletion, kindVersion}}
		gone := nostr.Filter{Kinds: []int{graspsync.KindVanish}}
		for _, e := range chunk {
			gone.Authors = append(gone.Authors, e.Event.PubKey)
			if e.Kind == graspsync.KindDeletion {
				continue
			}
			ids.Authors = append(ids.Authors, e.Event.PubKey)
			ids.Tags = addTag(ids.Tags, "e", e.Event.ID)
			if addr, ok := e.Address(); ok {
				addrs.Authors = append(addrs.Authors, e.Event.PubKey)
				addrs.Tags = addTag(addrs.Tags, "a", addr.String())
			}
		}
		named := nostr.Filter{Kinds: ids.Kinds}
		for _, f := range []*nostr.Filter{&ids, &addrs, &gone, &named} { // the query addrs adds to named
			if f.Tags == nil && f.Kinds[0] == graspsync.KindDeletion {
				continue
			}
			f.Authors = unique(f.Authors)
			err := s.walkAs(ctx, *f, true, func(d graspsync.Event) bool {
				if addr, v, ok := versionOf(d); ok && t.AddVersion(addr, v) {
					named.Authors, named.Tags = append(named.Authors, d.Event.PubKey), addTag(named.Tags, "e", v.ID.String())
				}
				t.Add(d)
				return true
			})
			if err != nil {
				return t, err
			}
		}
	}
	return t, ctx.Err()
}

func addTag(tags nostr.TagMap, name, value string) nostr.TagMap {
	if tags == nil {
		tags = make(nostr.TagMap, 1)
	}
	tags[name] = append(tags[name], value)
	return tags
}

func unique(values []string) []string {
	slices.Sort(values)
	return slices.Compact(values)
}
