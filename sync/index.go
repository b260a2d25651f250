package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// index is the [View] over a [Store]: accepted announcements and root events in
// memory, the rest by asking the Store. What changes in it is what the plan has to
// know.
//
// All methods may be called concurrently. The order in which stored, removed and
// replaceAll return their changes is the order in which these must be applied, so
// one goroutine, the owner, calls them.
type index struct {
	store Store                          // read-only
	lists func(*nip34.Announcement) bool // read-only
	us    nip34.Identity                 // read-only; who a request to vanish must concern
	past  *rejected                      // read-only; what was accepted once, nil if nobody remembers

	counters *counters // nil: panics are contained but not counted

	write   sync.Mutex // serialises the owner's methods; taken before mu
	pending *snapshot  // guarded by write: the scan under way

	mentioned mentions // has a lock of its own

	mu     sync.RWMutex // held for map operations only
	tables *indexTables // guarded by mu, and by write for changes
}

var _ View = (*index)(nil)

// newIndex returns an empty index; [index.scan] and [index.replaceAll] fill it.
// lists is [Policy.Lists].
func newIndex(store Store, lists func(*nip34.Announcement) bool) *index {
	return &index{store: store, lists: lists, tables: newIndexTables(), mentioned: mentions{ids: recent[filters.EventID, struct{}]{most: maxKnown}}}
}

// Announcements implements [View]. Their Event is nil.
func (x *index) Announcements(identifier string) []*nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clip(x.tables.named[identifier])
}

// Announced implements [Past].
func (x *index) Announced(ref filters.RepoRef) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.announced(ref)
}

// Maintained implements [Past].
func (x *index) Maintained(identifier string, author filters.PubKey) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	_, was := x.tables.maintained.get(maintainer{identifier, author})
	return was || nip34.Maintains(author, x.tables.named[identifier])
}

// Root implements [Past]: the event must tag a repository that is or was announced.
func (x *index) Root(id filters.EventID) bool {
	return x.hasRoot(id) || x.past.root(id)
}

func (x *index) hasRoot(id filters.EventID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	root, ok := x.tables.roots[id]
	return ok && slices.ContainsFunc(*root.repos, func(r *indexRepo) bool { return x.tables.announced(r.ref) })
}

const (
	idsAtOnce  = 500 // are looked up in one question to the Store: half of what a relay takes in a message
	tagsAtOnce = 100 // values of a tag are, which is all that many backends and relays take
)

// Gone implements [View].
func (x *index) Gone(ctx context.Context, ids []filters.EventID, author filters.PubKey) (bool, error) {
	if slices.ContainsFunc(ids, func(id filters.EventID) bool { return x.past.accepted(id, author) }) {
		return true, nil
	}
	by := []string{author.String()}
	for ev, err := range x.store.Events(ctx, nostr.Filter{Kinds: []int{filters.KindVanish}, Authors: by}) {
		if err != nil {
			return false, fmt.Errorf("looking for requests to vanish: %w", err)
		}
		if x.us.Vanishes(ev) {
			return true, nil
		}
	}
	for some := range slices.Chunk(ids, tagsAtOnce) {
		filter := nostr.Filter{Kinds: []int{filters.KindDeletion}, Authors: by, Tags: nostr.TagMap{"e": texts(some)}}
		gone, err := x.any(ctx, filter)
		if err != nil || gone {
			return gone, err
		}
	}
	return false, nil
}

// Addressed implements [View].
func (x *index) Addressed(ctx context.Context, at []nip34.Coordinates) (bool, error) {
	for some := range slices.Chunk(at, tagsAtOnce) {
		wanted := make(map[nip34.Coordinates]bool, len(some))
		var f nostr.Filter
		for _, c := range some {
			wanted[c] = true
			f.Kinds, f.Authors = append(f.Kinds, c.Kind), append(f.Authors, c.Author)
		}
		slices.Sort(f.Kinds)
		slices.Sort(f.Authors)
		f.Kinds, f.Authors = slices.Compact(f.Kinds), slices.Compact(f.Authors)
		if !slices.ContainsFunc(some, func(c nip34.Coordinates) bool { return c.Identifier == "" }) {
			f.Tags = nostr.TagMap{"d": nil}
			for _, c := range some {
				f.Tags["d"] = append(f.Tags["d"], c.Identifier)
			}
		}
		for ev, err := range x.store.Events(ctx, f) {
			if err != nil {
				return false, fmt.Errorf("looking up addresses: %w", err)
			}
			if c, ok := nip34.CoordinatesOf(ev); ok && wanted[c] {
				return true, nil
			}
		}
	}
	return false, nil
}

// any reports whether anything that is stored matches.
func (x *index) any(ctx context.Context, f nostr.Filter) (bool, error) {
	for _, err := range x.store.Stamps(ctx, f) {
		if err != nil {
			return false, fmt.Errorf("looking for stored events: %w", err)
		}
		return true, nil
	}
	return false, nil
}

func texts(ids []filters.EventID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// Wrote implements [View].
func (x *index) Wrote(ctx context.Context, author filters.PubKey) (bool, error) {
	return x.any(ctx, nostr.Filter{Authors: []string{author.String()}})
}

// rootTime returns the created_at of a root event, 0 if it is not known.
func (x *index) rootTime(id filters.EventID) nostr.Timestamp {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.roots[id].at
}

// Event implements [View].
func (x *index) Event(ctx context.Context, id filters.EventID) (*nostr.Event, error) {
	found, err := x.Events(ctx, []filters.EventID{id})
	return found[id], err
}

// Events implements [View].
func (x *index) Events(ctx context.Context, ids []filters.EventID) (map[filters.EventID]*nostr.Event, error) {
	found := make(map[filters.EventID]*nostr.Event)
	for some := range slices.Chunk(ids, idsAtOnce) {
		for ev, err := range x.store.Events(ctx, nostr.Filter{IDs: texts(some)}) {
			if err != nil {
				return nil, fmt.Errorf("looking up %d events: %w", len(ids), err)
			}
			if id, err := filters.ParseEventID(ev.ID); err == nil {
				found[id] = ev
			}
		}
	}
	return found, nil
}

// maxMentions of one event are remembered: with all, a hundred events would make
// those of all others forgotten.
const maxMentions = 1_000

// mentions remembers the ids that accepted events tag.
type mentions struct {
	mu  sync.Mutex
	ids recent[filters.EventID, struct{}] // guarded by mu
}

func (m *mentions) has(id filters.EventID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.ids.get(id)
	return ok
}

// mention takes note of what an accepted event tags that is not here. What asks for
// a deletion does not count.
func (x *index) mention(ev *nostr.Event) {
	if ev.Kind == filters.KindDeletion {
		return
	}
	ids := nip34.EventRefs(ev)
	for _, id := range ids[:min(len(ids), maxMentions)] {
		if x.hasRoot(id) {
			continue // or there would be many
		}
		x.mentioned.mu.Lock()
		x.mentioned.ids.set(id, struct{}{})
		x.mentioned.mu.Unlock()
	}
}

// Mentioned implements [View]. What asks for a deletion does not count.
func (x *index) Mentioned(ctx context.Context, id filters.EventID) (bool, error) {
	if x.mentioned.has(id) {
		return true, nil
	}
	for _, name := range []string{"e", "E", "q"} {
		filter := nostr.Filter{Tags: nostr.TagMap{name: {id.String()}}}
		for ev, err := range x.store.Events(ctx, filter) {
			if err != nil {
				return false, fmt.Errorf("looking for mentions of %s: %w", id, err)
			}
			if ev.Kind != filters.KindDeletion {
				return true, nil
			}
		}
	}
	return false, nil
}

// stored takes note of an event that has just become durable, of whatever kind.
// The calls may come in a slightly different order than the Store had: a deletion
// before its target, an announcement before the one it replaced.
func (x *index) stored(ev *nostr.Event) indexChange { return x.apply(x.storing(ev)) }

// superseded takes note of an event that was accepted but not stored, since a newer
// version or a deletion of it is here.
func (x *index) superseded(ev *nostr.Event) indexChange {
	if ev.Kind != filters.KindAnnouncement {
		return indexChange{}
	}
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil {
		return indexChange{}
	}
	listed := x.listed(a)
	a = withoutEvent(a)
	return x.apply(func(t *indexTables, _ *indexChange) { t.note(a, listed) })
}

// removed takes note of an event that has left the Store other than by an event
// that replaced or deleted it.
func (x *index) removed(ev *nostr.Event) indexChange {
	id, err := filters.ParseEventID(ev.ID)
	if err != nil || (ev.Kind != filters.KindAnnouncement && !nip34.IsRoot(ev.Kind)) {
		return indexChange{}
	}
	return x.apply(func(t *indexTables, c *indexChange) { t.forget(id, c) })
}

// indexOp is a change that can be applied to any tables.
type indexOp func(t *indexTables, c *indexChange)

func (x *index) apply(op indexOp) (c indexChange) {
	if op == nil {
		return c
	}
	x.write.Lock()
	defer x.write.Unlock()
	if x.pending != nil {
		x.pending.note(op)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	op(x.tables, &c)
	return c
}

// storing returns what a stored event does to the index, nil for nothing.
func (x *index) storing(ev *nostr.Event) indexOp {
	switch {
	case ev.Kind == filters.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil {
			return nil
		}
		listed := x.listed(a)
		a = withoutEvent(a)
		return func(t *indexTables, c *indexChange) { t.announce(a, listed, c) }
	case nip34.IsRoot(ev.Kind):
		return storingRoot(ev)
	case ev.Kind == filters.KindDeletion:
		return storingDeletion(ev)
	case x.us.Vanishes(ev):
		return storingVanish(ev)
	}
	return nil
}

// listed asks the policy. What makes it panic is not ours.
func (x *index) listed(a *nip34.Announcement) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	return x.lists(a)
}

func storingRoot(ev *nostr.Event) indexOp {
	refs := nip34.RootRefs(ev)
	id, err := filters.ParseEventID(ev.ID)
	author, err2 := filters.ParsePubKey(ev.PubKey)
	if err != nil || err2 != nil || len(refs) == 0 {
		return nil
	}
	at := ev.CreatedAt
	return func(t *indexTables, c *indexChange) { t.addRoot(id, author, at, refs, c) }
}

func storingVanish(ev *nostr.Event) indexOp {
	author, err := filters.ParsePubKey(ev.PubKey)
	if err != nil {
		return nil
	}
	until := ev.CreatedAt
	return func(t *indexTables, c *indexChange) { t.vanish(author, until, c) }
}

func storingDeletion(ev *nostr.Event) indexOp {
	author, err := filters.ParsePubKey(ev.PubKey)
	if err != nil {
		return nil
	}
	ids, addresses := nip34.ParseDeletion(ev)
	until := ev.CreatedAt
	return func(t *indexTables, c *indexChange) {
		for _, id := range ids {
			t.erase(id, author, c)
		}
		for _, a := range addresses {
			if a.Kind == filters.KindAnnouncement && a.PubKey == author {
				t.end(filters.RepoRef{Owner: author, Identifier: a.Identifier}, until, c)
			}
		}
	}
}

// withoutEvent returns a copy that does not keep the event's memory: an
// announcement may be half a megabyte long.
func withoutEvent(a *nip34.Announcement) *nip34.Announcement {
	b := *a
	b.Event = nil
	b.Name = strings.Clone(a.Name)
	b.Ref = cloneRef(a.Ref)
	return &b
}

// maxJournal is how many changes may happen while the Store is scanned.
const maxJournal = 100_000

// snapshot is a scan of the Store, with what changed meanwhile.
type snapshot struct {
	tables  *indexTables // owned by scan, then by replaceAll
	journal []indexOp    // guarded by index.write
}

// note remembers a change; one too many makes the snapshot useless.
func (s *snapshot) note(op indexOp) {
	if len(s.journal) <= maxJournal {
		s.journal = append(s.journal, op)
	}
}

// scan reads all there is from the Store, shows it, and keeps what the index holds. It
// may take long and changes nothing: the owner passes the result to replaceAll. Of
// several scans only the one that was begun last is of use. A Store that can't tell
// whether it gave all is believed as far as it goes: missed says what it said.
func (x *index) scan(ctx context.Context, show func(*nostr.Event)) (_ *snapshot, missed, err error) {
	s := &snapshot{tables: newIndexTables()}
	defer func() {
		if err != nil {
			x.finish(s)
		}
	}()
	defer x.counters.recovered(&err, "store")
	x.write.Lock()
	x.pending = s
	x.write.Unlock()
	for ev, err := range x.store.Events(ctx, nostr.Filter{Kinds: append(filters.Kinds(), filters.KindVanish)}) {
		if errors.Is(err, ErrIncomplete) {
			missed = err
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("scanning the store: %w", err)
		}
		if op := x.storing(ev); op != nil {
			op(s.tables, nil)
		}
		show(ev)
	}
	if missed != nil {
		err = x.retain(ctx, s)
	}
	return s, missed, err
}

// retain keeps what a scan did not find of what is known, if it is still stored: where
// not all could be read, that something did not come does not say that it is gone.
func (x *index) retain(ctx context.Context, s *snapshot) error {
	unseen := x.unseen(s)
	ids := slices.Collect(maps.Keys(unseen))
	for chunk := range slices.Chunk(ids, saveBatch) {
		has, err := x.store.Has(ctx, chunk)
		if err == nil && len(has) != len(chunk) {
			err = fmt.Errorf("%d answers on %d ids", len(has), len(chunk))
		}
		if err != nil {
			return fmt.Errorf("asking what is stored: %w", err)
		}
		for i, id := range chunk {
			if has[i] {
				unseen[id](s.tables, nil)
			}
		}
	}
	return nil
}

// unseen returns what would add to a scan what is known and not in it, by id.
func (x *index) unseen(s *snapshot) map[filters.EventID]indexOp {
	ops := make(map[filters.EventID]indexOp)
	x.mu.RLock()
	defer x.mu.RUnlock()
	for id, root := range x.tables.roots {
		if _, seen := s.tables.roots[id]; !seen {
			author, at, refs := root.author.Value(), root.at, root.refs()
			ops[id] = func(t *indexTables, c *indexChange) { t.addRoot(id, author, at, refs, c) }
		}
	}
	for id, repo := range x.tables.byID {
		if _, seen := s.tables.byID[id]; !seen && repo.ann != nil {
			a := repo.ann
			ops[id] = func(t *indexTables, c *indexChange) { t.announce(a, true, c) }
		}
	}
	return ops
}

// finish ends the journal of s and reports whether it was still being written.
func (x *index) finish(s *snapshot) bool {
	x.write.Lock()
	defer x.write.Unlock()
	return x.finishLocked(s)
}

func (x *index) finishLocked(s *snapshot) bool {
	if s == nil || x.pending != s {
		return false
	}
	x.pending = nil
	return len(s.journal) <= maxJournal
}

// replaceAll makes the index what a scan found, and what was stored and removed
// since it began, and returns the difference to what was known before. It is false
// for a snapshot that is of no use: a later scan was begun, too much has changed,
// or it was used before. Then nothing changes and another scan is needed.
func (x *index) replaceAll(s *snapshot) (indexChange, bool) {
	x.write.Lock()
	defer x.write.Unlock()
	if !x.finishLocked(s) {
		return indexChange{}, false
	}
	for _, op := range s.journal {
		op(s.tables, nil)
	}
	// Nobody else changes the tables now, so mu is not needed to read them.
	c := x.tables.difference(s.tables)
	x.mu.Lock()
	s.tables.inherit(x.tables)
	s.tables.past = x.past
	x.tables = s.tables
	x.mu.Unlock()
	return c, true
}
