package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
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

	// panicked is told of a panic that was contained, and whose it was: the "store"'s, or our
	// own. nil: nobody is told.
	panicked func(whose string, p any)

	write   sync.Mutex // serialises the owner's methods; taken before mu
	pending *snapshot  // guarded by write: the scan under way

	mu     sync.RWMutex // held for map operations only
	tables *indexTables // guarded by mu, and by write for changes
	// complete: the last scan has read all there is. Guarded by mu
	complete bool
	// guarded by mu: identifiers of which announcements came or went since they were taken
	news    map[string]struct{}
	tooMany bool // not all of them are kept
}

var _ View = (*index)(nil)

// newIndex returns an empty index; [index.scan] and [index.replaceAll] fill it.
// lists is [Policy.Lists], us is who a request to vanish must concern. panicked may be nil.
func newIndex(store Store, lists func(*nip34.Announcement) bool, us nip34.Identity, panicked func(whose string, p any)) *index {
	return &index{store: store, lists: lists, us: us, panicked: panicked, tables: newIndexTables()}
}

// Announcements implements [View]. Their Event is nil.
func (x *index) Announcements(identifier string) []*nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clip(x.tables.named[identifier])
}

// Announced implements [Standing].
func (x *index) Announced(ref graspsync.RepoRef) bool { return x.announcement(ref) != nil }

// Left implements [Standing].
func (x *index) Left(ref graspsync.RepoRef) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	r := x.tables.repos[ref]
	return r != nil && r.ann == nil && r.newest != (graspsync.Stamp{})
}

// Family implements [Standing]. Their Event is nil.
func (x *index) Family(identifier string) []*nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clip(x.tables.family[identifier])
}

// relatives returns the announcements with an identifier that are here since their authors were
// listed: none before all that is stored is known, since who lists them may not be.
func (x *index) relatives(identifier string) (out []*nip34.Announcement) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.complete {
		return nil
	}
	for _, a := range x.tables.family[identifier] {
		if r := x.tables.repos[a.Ref]; r != nil && r.relative {
			out = append(out, a)
		}
	}
	return out
}

// related returns the identifiers with such announcements.
func (x *index) related() (out []string) {
	each(x, x.repos(), func(ref graspsync.RepoRef, r *indexRepo) {
		if r.relative {
			out = append(out, ref.Identifier)
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

func (x *index) repos() map[graspsync.RepoRef]*indexRepo {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.repos
}

// Waiting implements [Standing].
func (x *index) Waiting(string) []*nip34.Announcement { return nil }

// Generation implements [Standing].
func (x *index) Generation(identifier string) Generation {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if g := x.tables.generations[identifier]; g != nil {
		return Generation{Stored: g, Known: true}
	}
	return Generation{Known: true}
}

// Knows implements [Standing].
func (x *index) Knows(identifier string, who graspsync.PubKey) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.known.Has(identifier, who)
}

// Root implements [Standing].
func (x *index) Root(id graspsync.EventID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	root, ok := x.tables.roots[id]
	return ok && slices.ContainsFunc(*root.repos, func(r *indexRepo) bool { return r.ann != nil })
}

const (
	idsAtOnce  = 500 // are looked up in one question to the Store: half of what a relay takes in a message
	tagsAtOnce = 100 // values of a tag are: more are too many for many backends and relays
)

// Addressed implements [View].
func (x *index) Addressed(ctx context.Context, at []graspsync.Address) (bool, error) {
	// In order of kinds, and without what no event has for an address: where one has no identifier
	// all of its kind is read, with all of the kinds in the same question.
	at = slices.DeleteFunc(slices.Clone(at), func(c graspsync.Address) bool {
		return !nostr.IsAddressableKind(c.Kind) && (!nostr.IsReplaceableKind(c.Kind) || c.Identifier != "")
	})
	slices.SortFunc(at, func(a, b graspsync.Address) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Identifier, b.Identifier), a.Author.Compare(b.Author))
	})
	for some := range slices.Chunk(slices.Compact(at), tagsAtOnce) {
		f, wanted := versions(some)
		for ev, err := range x.store.Events(ctx, f) {
			if err != nil {
				return false, fmt.Errorf("looking up addresses: %w", err)
			}
			if c, ok := ev.Address(); ok && wanted[c] {
				return true, nil
			}
		}
	}
	return false, nil
}

// versions returns a filter for what is at some addresses, and which these are: it matches
// other events as well.
func versions(some []graspsync.Address) (f nostr.Filter, wanted map[graspsync.Address]bool) {
	wanted = make(map[graspsync.Address]bool, len(some))
	for _, c := range some {
		wanted[c] = true
		f.Kinds, f.Authors = append(f.Kinds, c.Kind), append(f.Authors, c.Author.String())
	}
	slices.Sort(f.Kinds)
	slices.Sort(f.Authors)
	f.Kinds, f.Authors = slices.Compact(f.Kinds), slices.Compact(f.Authors)
	if !slices.ContainsFunc(some, func(c graspsync.Address) bool { return c.Identifier == "" }) {
		f.Tags = nostr.TagMap{"d": nil}
		for _, c := range some {
			f.Tags["d"] = append(f.Tags["d"], c.Identifier)
		}
	}
	return f, wanted
}

// nearAtOnce is how many events each question for what is near others may bring.
const nearAtOnce = 100

// Near implements [View].
func (x *index) Near(ctx context.Context, ids []graspsync.EventID, at []graspsync.Address) (near []graspsync.Event, err error) {
	ask := func(f nostr.Filter, fits func(graspsync.Event) bool) error {
		n := 0
		for ev, err := range x.store.Events(ctx, f) {
			if err != nil {
				return fmt.Errorf("looking for what is near others: %w", err)
			}
			if fits(ev) {
				near = append(near, ev)
			}
			if n++; n == nearAtOnce { // a Store knows no limit
				break
			}
		}
		return nil
	}
	undeleting := func(ev graspsync.Event) bool { return ev.Kind != graspsync.KindDeletion }
	tagging := func(values []string, names ...string) error {
		for some := range slices.Chunk(values, tagsAtOnce) {
			for _, name := range names {
				if err := ask(nostr.Filter{Tags: nostr.TagMap{name: some}}, undeleting); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := tagging(texts(ids), "e", "E", "q"); err != nil {
		return nil, err
	}
	addresses := make([]string, len(at))
	for i, c := range at {
		addresses[i] = c.String()
	}
	if err := tagging(addresses, "a", "A", "q"); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(at, tagsAtOnce) {
		f, wanted := versions(some)
		if err := ask(f, func(ev graspsync.Event) bool {
			c, ok := ev.Address()
			return ok && wanted[c]
		}); err != nil {
			return nil, err
		}
	}
	return near, nil
}

func texts(ids []graspsync.EventID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// Wrote implements [View].
func (x *index) Wrote(ctx context.Context, author graspsync.PubKey) (bool, error) {
	for ev, err := range x.store.Events(ctx, nostr.Filter{Authors: []string{author.String()}}) {
		if err != nil {
			return false, fmt.Errorf("looking for events of %s: %w", author, err)
		}
		if ev.Kind != graspsync.KindVanish {
			return true, nil
		}
	}
	return false, nil
}

// rootBy reports whether a root event, or what descends from one, is followed and by that
// author.
func (x *index) rootBy(id graspsync.EventID, author graspsync.PubKey) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n := x.tables.descent.nodes[refKey(id)]; n != nil && n.place.depth > 0 {
		return n.author.Value() == author
	}
	root, ok := x.tables.roots[id]
	return ok && root.author.Value() == author
}

// descends reports whether an event descends from something of ours, and is followed.
func (x *index) descends(id graspsync.EventID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.tables.descent.nodes[refKey(id)]
	return n != nil && n.place.depth > 0
}

// rootOwner returns whose repository a root event, or what descends from one, belongs to.
func (x *index) rootOwner(id graspsync.EventID) (owner graspsync.PubKey, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if n := x.tables.descent.nodes[refKey(id)]; n != nil && n.place.depth > 0 {
		owner, _, ok = x.tables.top(n.place.top)
		return owner, ok
	}
	root, ok := x.tables.roots[id]
	if !ok {
		return owner, false
	}
	i := slices.IndexFunc(*root.repos, func(r *indexRepo) bool { return r.ann != nil })
	if i < 0 {
		return owner, false
	}
	return (*root.repos)[i].ref.Owner, true
}

// rootTime returns the created_at of a root event, 0 if it is not known.
func (x *index) rootTime(id graspsync.EventID) nostr.Timestamp {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.roots[id].at
}

// Event implements [View].
func (x *index) Event(ctx context.Context, id graspsync.EventID) (graspsync.Event, error) {
	found, err := x.Events(ctx, []graspsync.EventID{id})
	return found[id], err
}

// Events implements [View].
func (x *index) Events(ctx context.Context, ids []graspsync.EventID) (map[graspsync.EventID]graspsync.Event, error) {
	found := make(map[graspsync.EventID]graspsync.Event)
	for some := range slices.Chunk(ids, idsAtOnce) {
		for ev, err := range x.store.Events(ctx, nostr.Filter{IDs: texts(some)}) {
			if err != nil {
				return nil, fmt.Errorf("looking up %d events: %w", len(ids), err)
			}
			found[ev.ID] = ev
		}
	}
	return found, nil
}

// Mentioned implements [View]. What asks for a deletion does not count.
func (x *index) Mentioned(ctx context.Context, id graspsync.EventID) (bool, error) {
	for _, name := range []string{"e", "E", "q"} {
		filter := nostr.Filter{Tags: nostr.TagMap{name: {id.String()}}}
		for ev, err := range x.store.Events(ctx, filter) {
			if err != nil {
				return false, fmt.Errorf("looking for mentions of %s: %w", id, err)
			}
			if ev.Kind != graspsync.KindDeletion {
				return true, nil
			}
		}
	}
	return false, nil
}

// stored takes note of an event that has just become durable, of whatever kind.
// The calls may come in a slightly different order than the Store had: a deletion
// before its target, an announcement before the one it replaced.
func (x *index) stored(ev graspsync.Event) (c indexChange) {
	x.contain(func() { c = x.apply(x.storing(ev)) })
	return c
}

// contain runs what takes in an event. A panic is a bug of ours, but whatever event provoked
// it must cost no more than that this one is not followed: the next scan may find out more.
func (x *index) contain(f func()) {
	defer func() {
		if p := recover(); p != nil {
			x.tell(whoseIndex, p)
		}
	}()
	f()
}

// recovered, deferred, turns a panic of the Store into an error.
func (x *index) recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("store panicked: %s", graspsync.Printable(fmt.Sprint(p)))
		x.tell(whoseStore, p)
	}
}

func (x *index) tell(whose string, p any) {
	if x.panicked != nil {
		x.panicked(whose, p)
	}
}

// removed takes note of an event that has left the Store other than by an event
// that replaced or deleted it.
func (x *index) removed(ev graspsync.Event) (c indexChange) {
	x.contain(func() { c = x.apply(func(t *indexTables, c *indexChange) { t.forget(ev.ID, c) }) })
	return c
}

// descending takes note of a stored event that may descend from something of ours.
func (x *index) descending(ev graspsync.Event) (c indexChange) {
	x.contain(func() { c = x.apply(storingNode(ev)) })
	return c
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
	x.note(c)
	return c
}

// maxNews is of how many identifiers it is kept that their announcements have changed.
const maxNews = 10_000

// note is called with mu held.
func (x *index) note(c indexChange) {
	for name := range c.names {
		if x.tooMany = x.tooMany || len(x.news) >= maxNews; x.tooMany {
			x.news = nil
			return
		}
		lazy.Put(&x.news, name, struct{}{})
	}
}

// takeNews returns the identifiers with other announcements than when it was called before,
// or that there are too many of them.
func (x *index) takeNews() (names map[string]struct{}, tooMany bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	names, tooMany = x.news, x.tooMany
	x.news, x.tooMany = nil, false
	return names, tooMany
}

// storing returns what a stored event does to the index, nil for nothing.
func (x *index) storing(ev graspsync.Event) indexOp {
	if op := x.standing(ev); op != nil {
		return op
	}
	return storingNode(ev)
}

func storingNode(ev graspsync.Event) indexOp {
	n := nodeOf(ev)
	if n == nil {
		return nil
	}
	return func(t *indexTables, c *indexChange) { t.addNode(n, c) }
}

// standing is storing without what descends from others: that is found only once these are.
func (x *index) standing(ev graspsync.Event) indexOp {
	switch {
	case ev.Kind == graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil {
			return nil
		}
		listed := x.listed(a)
		a = withoutEvent(a)
		return func(t *indexTables, c *indexChange) { t.announce(a, listed, c) }
	case nip34.IsRoot(ev.Kind):
		return storingRoot(ev)
	case ev.Kind == graspsync.KindDeletion:
		return storingDeletion(ev)
	case x.us.Vanishes(ev.Event):
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

func storingRoot(ev graspsync.Event) indexOp {
	refs := nip34.RootRefs(ev.Event)
	if len(refs) == 0 {
		return nil
	}
	id, author, at := ev.ID, ev.PubKey, ev.CreatedAt
	return func(t *indexTables, c *indexChange) { t.addRoot(id, author, at, refs, c) }
}

func storingVanish(ev graspsync.Event) indexOp {
	author, until := ev.PubKey, ev.CreatedAt
	return func(t *indexTables, c *indexChange) { t.vanish(author, until, c) }
}

func storingDeletion(ev graspsync.Event) indexOp {
	ids, addresses := nip34.ParseDeletion(ev.Event)
	author, until := ev.PubKey, ev.CreatedAt
	return func(t *indexTables, c *indexChange) {
		for i, id := range ids {
			t.erase(id, author, i < maxOfOne, c)
		}
		for i, a := range addresses {
			if a.Kind == graspsync.KindAnnouncement && a.Author == author {
				t.end(graspsync.RepoRef{Owner: author, Identifier: a.Identifier}, until, i < maxOfOne, c)
			} else if a.Author == author {
				t.endNode(a, until, c)
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
	tables   *indexTables // owned by scan, then by replaceAll
	complete bool         // set by scan
	journal  []indexOp    // guarded by index.write
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
func (x *index) scan(ctx context.Context, show func(graspsync.Event)) (_ *snapshot, missed, err error) {
	s := &snapshot{tables: newIndexTables()}
	defer func() {
		if err != nil {
			x.finish(s)
		}
	}()
	defer x.recovered(&err)
	x.write.Lock()
	x.pending = s
	x.write.Unlock()
	for ev, err := range x.store.Events(ctx, nostr.Filter{Kinds: append(filters.Kinds(), graspsync.KindVanish)}) {
		if errors.Is(err, ErrIncomplete) {
			missed = err
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("scanning the store: %w", err)
		}
		x.contain(func() {
			if op := x.standing(ev); op != nil {
				op(s.tables, nil)
			}
		})
		show(ev)
	}
	if s.complete = missed == nil; missed != nil {
		err = x.retain(ctx, s)
	}
	if err == nil {
		err = x.retainNodes(ctx, s)
	}
	return s, missed, err
}

// retain keeps what a scan did not find of what is known, if it is still stored: where
// not all could be read, that something did not come does not say that it is gone.
func (x *index) retain(ctx context.Context, s *snapshot) error {
	unseen := x.unseen(s)
	return x.stillHere(ctx, slices.Collect(maps.Keys(unseen)), func(id graspsync.EventID) { unseen[id](s.tables, nil) })
}

// retainNodes keeps what descends from what was found and is still stored. What is new of it
// is asked for later.
func (x *index) retainNodes(ctx context.Context, s *snapshot) error {
	var known []node
	x.mu.RLock()
	for k, n := range x.tables.descent.nodes {
		if k == n.keys()[0] {
			known = append(known, *n)
		}
	}
	x.mu.RUnlock()
	slices.SortFunc(known, func(a, b node) int { return cmp.Or(cmp.Compare(a.place.depth, b.place.depth), a.id.Compare(b.id)) })
	ids, byID := make([]graspsync.EventID, len(known)), make(map[graspsync.EventID]*node, len(known))
	for i := range known {
		n := &known[i]
		n.place, n.orphan = place{}, false
		ids[i], byID[n.id] = n.id, n
	}
	return x.stillHere(ctx, ids, func(id graspsync.EventID) { s.tables.addNode(byID[id], nil) })
}

// stillHere asks the Store which of some events it has, and has each of them taken, in order.
func (x *index) stillHere(ctx context.Context, ids []graspsync.EventID, take func(graspsync.EventID)) error {
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
				take(id)
			}
		}
	}
	return nil
}

// unseen returns what would add to a scan what is known and not in it, by id.
func (x *index) unseen(s *snapshot) map[graspsync.EventID]indexOp {
	ops := make(map[graspsync.EventID]indexOp)
	x.mu.RLock()
	defer x.mu.RUnlock()
	for id, root := range x.tables.roots {
		if _, seen := s.tables.roots[id]; !seen {
			author, at, refs := root.author.Value(), root.at, root.refs()
			ops[id] = func(t *indexTables, c *indexChange) { t.addRoot(id, author, at, refs, c) }
		}
	}
	for id, repo := range x.tables.byID {
		if _, seen := s.tables.byID[id]; !seen && repo.stored != nil {
			a, ours := repo.stored, repo.ann != nil
			ops[id] = func(t *indexTables, c *indexChange) { t.announce(a, ours, c) }
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
		x.contain(func() { op(s.tables, nil) })
	}
	// Nobody else changes the tables now, so mu is not needed to read them.
	s.tables.relativesOf(x.tables)
	c := x.tables.difference(s.tables)
	x.mu.Lock()
	x.tables, x.complete = s.tables, s.complete
	x.note(c)
	x.mu.Unlock()
	return c, true
}

// size is how much is known.
func (x *index) size() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.tables.repos) + len(x.tables.roots) + x.tables.descent.size
}

// announcedRepos is how many repositories are announced.
func (x *index) announcedRepos() (n int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, r := range x.tables.repos {
		if r.ann != nil {
			n++
		}
	}
	return n
}

// allStep is how much is gathered before others have their turn.
const allStep = 1_000

// all returns everything that is known, as one change from nothing. Others may change it
// meanwhile: whether what they change is in the answer as it was or as it is then is left
// open.
func (x *index) all() (c indexChange) {
	x.mu.RLock()
	t := x.tables
	x.mu.RUnlock()
	each(x, t.repos, func(ref graspsync.RepoRef, r *indexRepo) {
		if r.ann != nil {
			c.setRepo(ref, r.ann)
		}
	})
	each(x, t.roots, func(id graspsync.EventID, root indexRoot) { c.setRoot(id, root.refs()) })
	each(x, t.descent.nodes, func(_ refKey, n *node) {
		if n.place.depth > 0 {
			c.setDescendant(n.key, t.reposBelow(n.place))
		}
	})
	return c
}

// each goes through a map of the index, and holds its lock for a few entries at a time.
func each[K comparable, V any](x *index, m map[K]V, visit func(K, V)) {
	next, stop := iter.Pull2(maps.All(m))
	defer stop()
	some := func() (more bool) {
		x.mu.RLock()
		defer x.mu.RUnlock()
		for range allStep {
			k, v, ok := next()
			if !ok {
				return false
			}
			visit(k, v)
		}
		return true
	}
	for some() {
	}
}

// announcement returns the accepted announcement of a repository, nil if there is
// none.
func (x *index) announcement(ref graspsync.RepoRef) *nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.announcement(ref)
}

// reposOf returns the repositories that an event belongs to, at most 16: its own, if
// it is an announcement or a state, those that it tags, and those of the patches,
// pull requests and issues, and of what descends from these, that it tags.
func (x *index) reposOf(ev graspsync.Event) []graspsync.RepoRef {
	refs := nip34.RepoRefs(ev.Event)
	if ev.Kind == graspsync.KindAnnouncement || ev.Kind == graspsync.KindState {
		refs = append(refs, graspsync.RepoRef{Owner: ev.PubKey, Identifier: ev.Tags.GetD()})
	}
	ids := nip34.EventRefs(ev.Event)
	x.mu.RLock()
	for _, id := range ids {
		if root, ok := x.tables.roots[id]; ok {
			refs = append(refs, root.refs()...)
		} else if n := x.tables.descent.nodes[refKey(id)]; n != nil && n.place.depth > 0 {
			refs = append(refs, x.tables.reposBelow(n.place)...)
		}
	}
	x.mu.RUnlock()
	slices.SortFunc(refs, graspsync.RepoRef.Compare)
	refs = slices.Compact(refs)
	return refs[:min(len(refs), lookupRefs)]
}

// rootsOf returns the root events of a repository that are known.
func (x *index) rootsOf(ref graspsync.RepoRef) []graspsync.EventID {
	x.mu.RLock()
	defer x.mu.RUnlock()
	r := x.tables.repos[ref]
	if r == nil {
		return nil
	}
	ids := make([]graspsync.EventID, 0, len(r.roots))
	for id := range r.roots {
		ids = append(ids, id)
	}
	return ids
}

// descend looks in the Store for what descends from repositories that are ours, one step
// after the other, and has take told of each event that may; of all if none is named. It asks
// for as much as is followed: what there was no room for leads nowhere.
func (x *index) descend(ctx context.Context, of map[graspsync.RepoRef]struct{}, take func(graspsync.Event)) error {
	var missed error
	ask := func(values []string, names ...string) error {
		for some := range slices.Chunk(values, tagsAtOnce) {
			for _, name := range names {
				for ev, err := range x.store.Events(ctx, nostr.Filter{Tags: nostr.TagMap{name: some}}) {
					if errors.Is(err, ErrIncomplete) {
						missed = err
						break
					}
					if err != nil {
						return fmt.Errorf("looking for descendants: %w", err)
					}
					if nodeOf(ev) != nil {
						take(ev)
					}
				}
			}
		}
		return nil
	}
	for depth := range uint8(maxDepth) {
		ids, addresses := x.atDepth(depth, of)
		if err := ask(texts(ids), "e", "E", "q"); err != nil {
			return err
		}
		if err := ask(addresses, "a", "A", "q"); err != nil {
			return err
		}
	}
	return missed
}

// atDepth returns what is so far from repositories or their root events, and ours: 0 for these
// themselves.
func (x *index) atDepth(depth uint8, of map[graspsync.RepoRef]struct{}) (ids []graspsync.EventID, addresses []string) {
	x.mu.RLock()
	t := x.tables
	x.mu.RUnlock()
	top := func(ref graspsync.RepoRef, r *indexRepo) {
		if r != nil && r.ann != nil {
			addresses = append(addresses, ref.String())
		}
	}
	root := func(id graspsync.EventID) {
		if _, _, is := t.top(refKey(id)); is {
			ids = append(ids, id)
		}
	}
	below := func(n *node) {
		if n.place.depth != depth {
			return
		}
		ids = append(ids, n.id)
		if n.key.Address != "" {
			addresses = append(addresses, n.key.Address)
		}
	}
	switch {
	case of == nil && depth == 0:
		each(x, t.repos, top)
		each(x, t.roots, func(id graspsync.EventID, _ indexRoot) { root(id) })
	case of == nil:
		each(x, t.descent.nodes, func(k refKey, n *node) {
			if k == n.keys()[0] {
				below(n)
			}
		})
	default:
		x.mu.RLock()
		defer x.mu.RUnlock()
		for ref := range of {
			r := t.repos[ref]
			if r == nil {
				continue
			}
			if depth == 0 {
				top(ref, r)
			}
			branches := []refKey{addressRef(ref.String())}
			for id := range r.roots {
				if depth == 0 {
					root(id)
				}
				branches = append(branches, refKey(id))
			}
			for _, k := range branches {
				if b := t.descent.branches[k]; b != nil && depth > 0 {
					for n := range b.nodes {
						below(n)
					}
				}
			}
		}
	}
	slices.SortFunc(ids, graspsync.EventID.Compare)
	slices.Sort(addresses)
	return slices.Compact(ids), slices.Compact(addresses)
}

// lookUp returns, for each of the events that belong to any, to which repositories they do.
func (x *index) lookUp(ctx context.Context, ids []graspsync.EventID) (out [][]graspsync.RepoRef, err error) {
	defer x.recovered(&err)
	for _, f := range filters.ByID(ids, saveBatch) {
		f.Limit = 0
		for ev, err := range x.store.Events(ctx, f) {
			if err != nil {
				return out, err
			}
			if refs := x.reposOf(ev); len(refs) > 0 {
				out = append(out, refs)
			}
		}
	}
	return out, nil
}
