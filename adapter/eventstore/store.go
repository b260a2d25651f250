package eventstoreadapter

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// stripes is the number of locks that all authors share.
const stripes = 64

// Store is a [relaysync.Store] over a backend. Use [New]. It is safe for
// concurrent use if the backend is, or is serialised.
type Store struct {
	// set by New, read-only
	cfg Config
	*guard

	authors [stripes]sync.Mutex // guards what is stored of the authors of a stripe
	// removing is held for each removal: badger's counts them in a variable without
	// a lock.
	removing sync.Mutex
}

var _ relaysync.Store = (*Store)(nil)

// New returns a Store over a backend, on which Init was called. The backend is the
// embedder's: its Close is not called. The error wraps [ErrUnsupported] for a backend other than badger, lmdb and slicestore, or a
// struct that embeds one of these. The Store has an lmdb to itself until Close; if another Store has it, the error wraps [ErrInUse].
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

// Close ends the use of the backend: it returns once nothing is read from it or written to it,
// after 10 s at most, with an error that wraps ErrBackend if it still answers then. What is
// asked later fails with ErrClosed. It is called before the backend is closed, which may
// panic while it is read from, as badger does. It may be called again.
func (s *Store) Close() error { return s.uses.close() }

// Backend returns the backend as a relay should use it: what clients write is saved
// under the same locks and by the same rules as what Save is given, and queries are
// serialised where that is needed. What does not match a query is left out of its answer, and each event comes once.
// What no index finds, such as the long address of a repository, and what stands behind events that have another kind, author or tag
// than what is asked for besides, is looked for among half a million events; a question for which that is not enough fails with
// ErrTooMuch. A client is whom a context of a gate (package gate) is for: none has all places in which is read.
// An answer has the newest events that match, as many as the backend itself would give, and of these the newest 8 MiB. It is in
// memory until the client has read it or its context has ended. Clients that have not read answers of 32 MiB wait with the next one,
// as all clients do beyond 128 MiB. The backend is read in small pages, few at once, so that
// nobody can have it read much into memory. Those for a reconciliation (NIP-77) are answered completely, by id, time, kind and author
// alone. A search (NIP-50) finds nothing. Init and Close of what is returned do nothing. CountEvents counts what the same question
// would be answered with if it had no limit.
func (s *Store) Backend() interface {
	eventstore.Store
	eventstore.Counter
} {
	return shared{s}
}

// answer has events read one after the other, until ctx ends, and releases the slot then. A small answer does
// not wait for that, because a caller that wants one event may not read to the end.
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
		for _, e := range events {
			select {
			case ch <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ch
}

// PageSize is how many events one query of the backend gives at most: what clients ask for beyond that they don't get.
func (s *Store) PageSize() int { return s.traits.Page }

// Stamps implements [relaysync.Store]. Backends give whole events, so it costs as
// much as Events.
func (s *Store) Stamps(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Stamp, error] {
	return func(yield func(graspsync.Stamp, error) bool) {
		err := s.walk(ctx, filter, func(e graspsync.Event) bool {
			return yield(e.Stamp(), nil)
		})
		if err != nil {
			yield(graspsync.Stamp{}, fmt.Errorf("reading stamps: %w", err))
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

// walk calls yield for every event that matches, until it returns false.
func (s *Store) walk(
	ctx context.Context, f nostr.Filter, yield func(graspsync.Event) bool,
) error {
	return s.walkAs(ctx, f, false, yield)
}

// walkAs is walk. If records is set, records of versions are among the events.
func (s *Store) walkAs(ctx context.Context, f nostr.Filter, records bool, yield func(graspsync.Event) bool) error {
	return s.walkBy(ctx, f, &walk{yield: yield, records: records})
}

// walkBy is a walk of which all is said but what it reads.
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

// all returns every event that matches.
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

// lock takes the locks of the authors of some events, always in the same order.
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

// syncer is what backends have that do not write through.
type syncer interface{ Sync() error }

func (s *Store) sync(ctx context.Context, outcomes []graspsync.Outcome) error {
	backend, ok := s.backend.(syncer)
	if !ok || s.cfg.NoSync || !slices.ContainsFunc(outcomes, func(o graspsync.Outcome) bool {
		return o.Result == graspsync.Stored || o.Result == graspsync.Duplicate || o.Result == graspsync.Deleted
	}) {
		return nil
	}
	// not given up half-way: the events are stored already
	return s.call(context.WithoutCancel(ctx), "syncing the backend", func() error {
		if err := backend.Sync(); err != nil {
			return fmt.Errorf("%w: %w", ErrBackend, err)
		}
		return nil
	})
}

// MaxContent returns the length of the longest content that the backend keeps, in bytes, or 0 if it has no such bound.
func (s *Store) MaxContent() int {
	if s.traits.Memory {
		return 0
	}
	return math.MaxUint16
}

// Storable returns nil if the backend can keep an event as it is, and else why it can't. The error wraps
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

// compactable reports why an event exceeds the 16-bit and 8-bit counts of the binary form of badger and lmdb.
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

// batch is one Save.
type batch struct {
	*Store
	events   []graspsync.Event // those worth trying
	places   []int             // where their outcomes belong
	outcomes []graspsync.Outcome
	have     map[graspsync.EventID]struct{} // what is stored
	tombs    *nip34.Tombstones
}

// prepare looks up for all events at once what is known of them.
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
		if _, have = b.have[e.ID]; have { // a crash came between the deletion and this
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

// put saves an event whatever else is there.
func (b *batch) put(ctx context.Context, e graspsync.Event) (graspsync.Result, error) {
	result, err := b.write(ctx, e.Event)
	if err == nil {
		b.have[e.ID] = struct{}{}
	}
	return result, err
}

// write has the backend save an event.
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

// removeFor removes an event for the sake of another one, and says so.
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

// Writable returns why the backend can't be written to, as far as that is known: why the last three
// writes failed, or more, if the last of them was within the last minute. It is nil otherwise. It asks the backend nothing.
func (s *Store) Writable() error { return s.writable() }

// replace saves a version if it is the newest of its address, and then removes the
// others: a crash in between leaves too much, which the next call repairs, rather
// than too little.
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

// versions returns what is stored at an address.
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
	return a.Stamp().Newer(b.Stamp())
}

// removes reports whether an event removes others: a deletion, or a request to
// vanish that concerns us.
func (s *Store) removes(e graspsync.Event) bool {
	return e.Kind == graspsync.KindDeletion || s.cfg.Identity.Vanishes(e.Event)
}

// execute removes what a stored deletion names, or everything by who vanishes.
func (b *batch) execute(ctx context.Context, e graspsync.Event) error {
	b.tombs.Add(e)
	return b.removeCovered(ctx, b.tombs, e, b.forget)
}

// removeCovered removes what e names, of what t covers.
func (s *Store) removeCovered(ctx context.Context, t *nip34.Tombstones, e graspsync.Event, removed func(graspsync.Event)) error {
	targets, err := s.targets(ctx, e)
	if err != nil {
		return fmt.Errorf("looking up what is to be removed: %w", err)
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

// kindVersion is the kind of a record in the backend that a version of an address existed, which a
// deletion named by its id. The a tag of the record is the address, its e tag and created_at are
// those of the version. Deletions do not tell which address an id had, and older versions must stay
// deleted after a restart. The kind is ephemeral, because no other event of such a kind is stored.
const kindVersion = 20_005

// versionRecord returns the record of a version.
func versionRecord(addr graspsync.Address, e graspsync.Event) *nostr.Event {
	r := &nostr.Event{
		PubKey: e.Event.PubKey, Kind: kindVersion, CreatedAt: e.CreatedAt,
		Tags: nostr.Tags{{"a", addr.String()}, {"e", e.Event.ID}}, Sig: strings.Repeat("0", 128),
	}
	r.ID = r.GetID()
	return r
}

// versionOf reads a record of a version.
func versionOf(r graspsync.Event) (addr graspsync.Address, v graspsync.Stamp, ok bool) {
	a, e := r.Tags.Find("a"), r.Tags.Find("e")
	if r.Kind != kindVersion || a == nil || e == nil {
		return addr, v, false
	}
	addr, err := graspsync.ParseAddress(a[1])
	id, err2 := graspsync.ParseEventID(e[1])
	return addr, graspsync.Stamp{CreatedAt: r.CreatedAt, ID: id}, err == nil && err2 == nil
}

// removeVersions records a version that a deletion names by its id, and removes the older versions of
// its address.
func (s *Store) removeVersions(ctx context.Context, t *nip34.Tombstones, e graspsync.Event, removed func(graspsync.Event)) error {
	addr, ok := e.Address()
	if !ok || !t.Names(e) || !t.AddVersion(addr, e.Stamp()) {
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
	_, err = s.write(ctx, versionRecord(addr, e)) // last, so that after a crash all is done again
	return err
}

// targets returns what is stored of what an event removes, and maybe more.
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

// addressesAtOnce is how many addresses, or kinds, are looked up in one query.
const addressesAtOnce = 100

// versionsOf returns what is stored at addresses of one author. A stranger may name thousands:
// they are looked up in order of their kinds, so that of what the author has stored each event
// is read a few times at most.
func (s *Store) versionsOf(ctx context.Context, author string, at []graspsync.Address) (found []graspsync.Event, err error) {
	wanted := make(map[graspsync.Address]bool, len(at))
	var exact []graspsync.Address
	var kinds []int // of addresses that no tag finds
	for _, c := range at {
		switch {
		case wanted[c]:
			continue
		case nostr.IsAddressableKind(c.Kind) && c.Identifier != "" && s.traits.Indexed("d", c.Identifier):
			exact = append(exact, c)
		case nostr.IsAddressableKind(c.Kind), nostr.IsReplaceableKind(c.Kind) && c.Identifier == "":
			kinds = append(kinds, c.Kind)
		default:
			continue // no event has such an address
		}
		wanted[c] = true
	}
	slices.SortFunc(exact, func(a, b graspsync.Address) int { return cmp.Compare(a.Kind, b.Kind) })
	slices.Sort(kinds)
	var asked []nostr.Filter
	for some := range slices.Chunk(exact, addressesAtOnce) {
		f := nostr.Filter{Tags: nostr.TagMap{"d": nil}}
		for _, c := range some {
			f.Kinds, f.Tags["d"] = append(f.Kinds, c.Kind), append(f.Tags["d"], c.Identifier)
		}
		f.Kinds = slices.Compact(f.Kinds)
		asked = append(asked, f)
	}
	for some := range slices.Chunk(slices.Compact(kinds), addressesAtOnce) {
		asked = append(asked, nostr.Filter{Kinds: some})
	}
	seen := make(map[graspsync.EventID]bool)
	for _, f := range asked {
		f.Authors = []string{author}
		err := s.walk(ctx, f, func(e graspsync.Event) bool {
			if c, ok := e.Address(); ok && wanted[c] && !seen[e.ID] {
				seen[e.ID] = true
				found = append(found, e)
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Targets returns what is stored of what a deletion names: ids, whoever wrote their
// events, and addresses of its author's.
func (s *Store) Targets(ctx context.Context, deletion graspsync.Event) ([]graspsync.Event, error) {
	if deletion.IsZero() || deletion.Kind != graspsync.KindDeletion {
		return nil, ctx.Err()
	}
	targets, err := s.targets(ctx, deletion)
	if err != nil {
		return nil, fmt.Errorf("looking up what is to be removed: %w", err)
	}
	return targets, nil
}

// Execute removes whatever a stored deletion names, or everything by the author of
// a request to vanish that concerns us. It is for those that did not come through
// Save: relays commonly remove a single event for each tag.
func (s *Store) Execute(ctx context.Context, event graspsync.Event) error {
	if event.IsZero() || !s.removes(event) {
		return fmt.Errorf("%w: removes nothing", ErrUnstorable)
	}
	defer s.lock([]graspsync.Event{event})()
	t := nip34.NewTombstones(s.cfg.Identity)
	t.Add(event)
	return s.removeCovered(ctx, t, event, func(graspsync.Event) {})
}

// Remove takes an event out of the backend, as moderation or expiry does. An event
// that is not there is no error.
func (s *Store) Remove(ctx context.Context, event graspsync.Event) error {
	if event.IsZero() {
		return nil
	}
	defer s.lock([]graspsync.Event{event})()
	return s.removeStored(ctx, event)
}

// lookUpAtOnce is for how many events deletions are looked up in one query.
const lookUpAtOnce = 100

// tombstonesOf returns the deletions and requests to vanish that are stored and may
// cover any of the events.
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
		for _, f := range []*nostr.Filter{&ids, &addrs, &gone, &named} { // addrs finds what named looks for
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
