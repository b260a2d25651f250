package sync

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// eventIndex contains the stored announcements and root events, and their replies. It does not read
// the Store; [storeReader] fills it. Its changes are inputs of the plan.
//
// All methods may be called concurrently. Changes must be applied in the order in which stored,
// removed and replaceAll return them, so only selfSubscriber calls these methods.
type eventIndex struct {
	lists func(*nip34.Announcement) bool // read-only
	us    nip34.Identity                 // read-only; the service of requests to vanish

	// panicked is called with a contained panic and its origin. It may be nil.
	panicked func(whose string, p any)

	write   sync.Mutex // serializes changes; taken before mu
	pending *indexScan // guarded by write: the running scan

	mu     sync.RWMutex // held for map operations only
	tables *indexTables // guarded by mu, and by write for changes
	// complete: the last scan has read all events without an error or a panic. Guarded by mu.
	complete bool
	// guarded by mu: identifiers whose announcements have changed since takeNews
	news    map[string]struct{}
	tooMany bool // the list exceeded maxNews and was dropped
}

var _ AnnouncementView = (*eventIndex)(nil)

// newEventIndex returns an empty index. lists is [Policy.Lists]. panicked may be nil.
func newEventIndex(lists func(*nip34.Announcement) bool, us nip34.Identity, panicked func(whose string, p any)) *eventIndex {
	return &eventIndex{lists: lists, us: us, panicked: panicked, tables: newIndexTables()}
}

// Announcements implements [View]. The announcements have no Event.
func (x *eventIndex) Announcements(identifier string) []*nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clip(x.tables.named[identifier])
}

// Announced implements [AnnouncementView].
func (x *eventIndex) Announced(ref graspsync.RepoRef) bool { return x.announcement(ref) != nil }

// Left implements [AnnouncementView].
func (x *eventIndex) Left(ref graspsync.RepoRef) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	r := x.tables.repos[ref]
	return r != nil && r.ann == nil && r.newest != (graspsync.EventKey{})
}

// Family implements [AnnouncementView]. The announcements have no Event.
func (x *eventIndex) Family(identifier string) []*nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clip(x.tables.family[identifier])
}

// relatives returns the announcements with an identifier that are stored because a maintainer list
// names their authors. It returns none before a complete scan, because the lists are unknown.
func (x *eventIndex) relatives(identifier string) (out []*nip34.Announcement) {
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

// related returns the identifiers with relatives.
func (x *eventIndex) related() (out []string) {
	each(x, maps.All(x.repos()), func(ref graspsync.RepoRef, r *indexRepo) {
		if r.relative {
			out = append(out, ref.Identifier)
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

func (x *eventIndex) repos() map[graspsync.RepoRef]*indexRepo {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.repos
}

// Waiting implements [AnnouncementView].
func (x *eventIndex) Waiting(string) []*nip34.Announcement { return nil }

// Revision implements [AnnouncementView].
func (x *eventIndex) Revision(identifier string) Revision {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if g := x.tables.generations[identifier]; g != nil {
		return Revision{Stored: g, Known: true}
	}
	return Revision{Known: true}
}

// Knows implements [AnnouncementView].
func (x *eventIndex) Knows(identifier string, who graspsync.PubKey) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.known.Has(identifier, who)
}

// Root implements [AnnouncementView].
func (x *eventIndex) Root(id graspsync.EventID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	root := x.tables.roots.get(id)
	return root != nil && slices.ContainsFunc(*root.repos, func(r *indexRepo) bool { return r.ann != nil })
}

func (x *eventIndex) rootTime(id graspsync.EventID) nostr.Timestamp {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if root := x.tables.roots.get(id); root != nil {
		return root.at
	}
	return 0
}

// stored applies a durable event of any kind. Events may be reported in another order than they
// were stored: a deletion before its target, or an announcement before the one that it replaces.
func (x *eventIndex) stored(ev graspsync.Event) indexChange {
	return x.change(func() indexChange { return x.apply(x.storing(ev)) })
}

// contain runs f and recovers a panic. The event that caused it is not followed before the next
// scan.
func (x *eventIndex) contain(f func()) {
	defer func() {
		if p := recover(); p != nil {
			if x.panicked != nil {
				x.panicked(whoseIndex, p)
			}
		}
	}()
	f()
}

// change returns the result of f. After a panic the result is marked as broken.
func (x *eventIndex) change(f func() indexChange) indexChange {
	c := indexChange{broken: true}
	x.contain(func() { c = f() })
	return c
}

// removed applies the removal of an event that no other event replaced or deleted.
func (x *eventIndex) removed(ev graspsync.Event) indexChange {
	return x.change(func() indexChange { return x.apply(func(t *indexTables, c *indexChange) { t.forget(ev.ID, c) }) })
}

// descending applies a stored event that may be a reply to an event of a hosted repository.
func (x *eventIndex) descending(ev graspsync.Event) indexChange {
	return x.change(func() indexChange { return x.apply(storingNode(ev)) })
}

// indexUpdate is a change that can be applied to any tables.
type indexUpdate func(t *indexTables, c *indexChange)

func (x *eventIndex) apply(op indexUpdate) (c indexChange) {
	if op == nil {
		return c
	}
	x.write.Lock()
	defer x.write.Unlock()
	if s := x.pending; s != nil {
		s.note(op)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	op(x.tables, &c)
	x.renew(c.names)
	return c
}

const maxNews = 10_000

// note adds the identifier of an announcement to news, because the announcement is or was held.
func (x *eventIndex) note(ev graspsync.Event) {
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.renew(map[string]struct{}{strings.Clone(a.Ref.Identifier): {}})
	}
}

// renew adds identifiers to news. mu is held.
func (x *eventIndex) renew(names map[string]struct{}) {
	for name := range names {
		if x.tooMany = x.tooMany || len(x.news) >= maxNews; x.tooMany {
			x.news = nil
			return
		}
		lazy.Put(&x.news, name, struct{}{})
	}
}

// takeNews returns the identifiers whose announcements have changed since the last call. tooMany
// means that the list was dropped.
func (x *eventIndex) takeNews() (names map[string]struct{}, tooMany bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	names, tooMany = x.news, x.tooMany
	x.news, x.tooMany = nil, false
	return names, tooMany
}

// storing returns the update for a stored event, or nil.
func (x *eventIndex) storing(ev graspsync.Event) indexUpdate {
	if op := x.standing(ev); op != nil {
		return op
	}
	return storingNode(ev)
}

func storingNode(ev graspsync.Event) indexUpdate {
	a := threadReplyOf(ev)
	if a == nil {
		return nil
	}
	return func(t *indexTables, c *indexChange) { t.addNode(a, c) }
}

// standing returns the update for an event that is no reply, or nil.
func (x *eventIndex) standing(ev graspsync.Event) indexUpdate {
	switch {
	case ev.Kind == graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil {
			return nil
		}
		listed, sure := x.listed(a)
		if !sure {
			return x.asBefore(a.Ref)
		}
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

// listed calls Policy.Lists. sure is false if it panicked.
func (x *eventIndex) listed(a *nip34.Announcement) (yes, sure bool) {
	defer func() {
		if p := recover(); p != nil && x.panicked != nil {
			x.panicked("policy", p)
		}
	}()
	return x.lists(a), true
}

func (x *eventIndex) listedBy(ev graspsync.Event) *nip34.Announcement {
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil {
		return nil
	}
	if yes, _ := x.listed(a); !yes {
		return nil
	}
	return a
}

// asBefore keeps the known state of a repository after a panic of the Policy about its
// announcement. The next scan calls the Policy again.
func (x *eventIndex) asBefore(ref graspsync.RepoRef) indexUpdate {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var known *nip34.Announcement
	ours := false
	if r := x.tables.repos[ref]; r != nil {
		known, ours = r.stored, r.ann != nil
	}
	return func(t *indexTables, c *indexChange) {
		t.doubted = true
		c.setBroken()
		if known != nil { // a scan has not found it
			t.announce(known, ours, c)
		}
	}
}

func storingRoot(ev graspsync.Event) indexUpdate {
	refs := nip34.RootRefs(ev.Event)
	if len(refs) == 0 {
		return nil
	}
	id, author, at := ev.ID, ev.PubKey, ev.CreatedAt
	return func(t *indexTables, c *indexChange) { t.addRoot(id, author, at, refs, c) }
}

func storingVanish(ev graspsync.Event) indexUpdate {
	author, until := ev.PubKey, ev.CreatedAt
	return func(t *indexTables, c *indexChange) { t.vanish(author, until, c) }
}

func storingDeletion(ev graspsync.Event) indexUpdate {
	ids, addresses := nip34.ParseDeletion(ev.Event)
	author, until := ev.PubKey, ev.CreatedAt
	return func(t *indexTables, c *indexChange) {
		for _, id := range ids {
			t.erase(id, author, c)
		}
		for _, a := range addresses {
			if a.Kind == graspsync.KindAnnouncement && a.Author == author {
				t.end(graspsync.RepoRef{Owner: author, Identifier: a.Identifier}, until, c)
			} else if a.Author == author {
				t.threads.end(a, until, c)
			}
		}
	}
}

// withoutEvent returns a copy without the event, which may take 500 KB of memory.
func withoutEvent(a *nip34.Announcement) *nip34.Announcement {
	b := *a
	b.Event = nil
	b.Name = strings.Clone(a.Name)
	b.Ref = cloneRef(a.Ref)
	return &b
}

// maxJournal is the maximum number of changes recorded during a scan.
const maxJournal = 100_000

// indexScan is a scan of the Store and the changes during the scan.
type indexScan struct {
	tables   *indexTables  // owned by storeReader, then by replaceAll
	complete bool          // set by storeReader
	journal  []indexUpdate // guarded by eventIndex.write
}

// note records a change. If the journal is full, the scan becomes useless.
func (s *indexScan) note(op indexUpdate) {
	if len(s.journal) <= maxJournal {
		s.journal = append(s.journal, op)
	}
}

// begin starts a scan and makes any earlier scan useless.
func (x *eventIndex) begin() *indexScan {
	s := &indexScan{tables: newIndexTables()}
	x.write.Lock()
	defer x.write.Unlock()
	x.pending = s
	return s
}

// found returns the update for an event that a scan has found, or nil.
func (x *eventIndex) found(ev graspsync.Event) (op indexUpdate) {
	x.contain(func() { op = x.standing(ev) })
	return op
}

func (x *eventIndex) keep(s *indexScan, op indexUpdate) { x.contain(func() { op(s.tables, nil) }) }

// descendants returns the known replies, each after the events that it replies to.
func (x *eventIndex) descendants() []*threadReply {
	type placed struct {
		*threadReply
		depth uint8
	}
	var known []placed
	x.mu.RLock()
	nodes := x.tables.threads.nodes
	x.mu.RUnlock()
	each(x, maps.All(nodes), func(k refKey, n *threadNode) {
		if k == n.keys()[0] {
			known = append(known, placed{n.answer(), n.place.depth})
		}
	})
	slices.SortFunc(known, func(a, b placed) int { return cmp.Or(cmp.Compare(a.depth, b.depth), a.id.Compare(b.id)) })
	out := make([]*threadReply, len(known))
	for i, k := range known {
		out[i] = k.threadReply
	}
	return out
}

// unseen returns an update, by id, for each known event that a scan has not found.
func (x *eventIndex) unseen(s *indexScan) map[graspsync.EventID]indexUpdate {
	ops := make(map[graspsync.EventID]indexUpdate)
	x.mu.RLock()
	known := x.tables
	x.mu.RUnlock()
	each(x, known.roots.all(), func(id graspsync.EventID, root indexRoot) {
		if s.tables.roots.get(id) == nil {
			author, at, refs := root.author.Value(), root.at, root.refs()
			ops[id] = func(t *indexTables, c *indexChange) { t.addRoot(id, author, at, refs, c) }
		}
	})
	each(x, maps.All(known.byID), func(id graspsync.EventID, repo *indexRepo) {
		if _, seen := s.tables.byID[id]; !seen && repo.stored != nil {
			a, ours := repo.stored, repo.ann != nil
			ops[id] = func(t *indexTables, c *indexChange) { t.announce(a, ours, c) }
		}
	})
	return ops
}

// finish ends the journal of s and reports whether it is complete.
func (x *eventIndex) finish(s *indexScan) bool {
	x.write.Lock()
	defer x.write.Unlock()
	return x.finishLocked(s)
}

func (x *eventIndex) finishLocked(s *indexScan) bool {
	if s == nil || x.pending != s {
		return false
	}
	x.pending = nil
	return len(s.journal) <= maxJournal
}

// replaceAll replaces the index by a scan and the changes since its start, and returns the
// difference. It returns false and changes nothing if a later scan has started, too many changes
// were made, or the scan was used before. Changes block meanwhile, for about a second with half a
// million events. Readers do not block.
func (x *eventIndex) replaceAll(s *indexScan) (c indexChange, ok bool) {
	x.write.Lock()
	defer x.write.Unlock()
	if !x.finishLocked(s) {
		return c, false
	}
	for _, op := range s.journal {
		x.keep(s, op)
	}
	for _, r := range s.tables.repos { // a scan does not know why an announcement is stored
		was := x.tables.repos[r.ref]
		r.relative = was != nil && was.relative
	}
	c = x.tables.difference(s.tables)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tables, x.complete = s.tables, s.complete && !s.tables.doubted
	x.renew(c.names)
	return c, true
}

func (x *eventIndex) size() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.tables.repos) + x.tables.roots.len() + x.tables.threads.placed.Len()
}

func (x *eventIndex) announcedRepos() (n int) {
	each(x, maps.All(x.repos()), func(_ graspsync.RepoRef, r *indexRepo) {
		if r.ann != nil {
			n++
		}
	})
	return n
}

// allStep is the number of entries that are read before the lock is released.
const allStep = 100

// all returns the whole index as one change. Concurrent changes may be included or not.
func (x *eventIndex) all() (c indexChange) {
	x.mu.RLock()
	t := x.tables
	c.repos = make(map[graspsync.RepoRef]*nip34.Announcement, len(t.named))
	c.roots = make(map[graspsync.EventID][]graspsync.RepoRef, t.roots.len())
	x.mu.RUnlock()
	each(x, maps.All(t.repos), func(ref graspsync.RepoRef, r *indexRepo) {
		if r.ann != nil {
			c.setRepo(ref, r.ann)
		}
	})
	each(x, t.roots.all(), func(id graspsync.EventID, root indexRoot) { c.setRoot(id, root.refs()) })
	each(x, maps.All(t.threads.nodes), func(_ refKey, n *threadNode) {
		if n.place.depth > 0 {
			c.setDescendant(n.key(), t.threads.reposBelow(n.place))
		}
	})
	return c
}

// each visits entries of the index and releases the lock after each allStep entries.
func each[K comparable, V any](x *eventIndex, all iter.Seq2[K, V], visit func(K, V)) {
	next, stop := iter.Pull2(all)
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
	more := true
	for more {
		more = some()
	}
}

// listing returns the number of hosted repositories that list a relay, and up to three of them.
func (x *eventIndex) listing(u graspsync.RelayURL) (n int, examples []graspsync.RepoRef) {
	each(x, maps.All(x.repos()), func(ref graspsync.RepoRef, r *indexRepo) {
		if r.ann != nil && slices.Contains(r.ann.Relays, u) {
			if n++; len(examples) < 3 {
				examples = append(examples, ref)
			}
		}
	})
	return n, examples
}

func (x *eventIndex) announcement(ref graspsync.RepoRef) *nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.announcement(ref)
}

// reposOf returns at most 16 repositories of an event: its own if it is an announcement or a state,
// the repositories that it tags, and those of the root events and replies that it tags.
func (x *eventIndex) reposOf(ev graspsync.Event) []graspsync.RepoRef {
	refs := nip34.RepoRefs(ev.Event)
	if ev.Kind == graspsync.KindAnnouncement || ev.Kind == graspsync.KindState {
		refs = append(refs, graspsync.RepoRef{Owner: ev.PubKey, Identifier: ev.Tags.GetD()})
	}
	ids := nip34.EventRefs(ev.Event)
	x.mu.RLock()
	for _, id := range ids {
		if root := x.tables.roots.get(id); root != nil {
			refs = append(refs, root.refs()...)
		} else if n := x.tables.threads.nodes[refKey(id)]; n != nil && n.place.depth > 0 {
			refs = append(refs, x.tables.threads.reposBelow(n.place)...)
		}
	}
	x.mu.RUnlock()
	slices.SortFunc(refs, graspsync.RepoRef.Compare)
	refs = slices.Compact(refs)
	return refs[:min(len(refs), lookupRefs)]
}

// rootsOf returns the known root events of a repository.
func (x *eventIndex) rootsOf(ref graspsync.RepoRef) []graspsync.EventID {
	x.mu.RLock()
	defer x.mu.RUnlock()
	r := x.tables.repos[ref]
	if r == nil {
		return nil
	}
	ids := make([]graspsync.EventID, 0, r.roots.Len())
	for n := range r.roots.All() {
		ids = append(ids, x.tables.roots.at(n).id)
	}
	return ids
}

// atDepth returns the ids and addresses at a number of references from the repositories in of and
// their root events. A nil of means all repositories. Depth 0 returns the repositories and root
// events.
func (x *eventIndex) atDepth(depth uint8, of map[graspsync.RepoRef]struct{}) (ids []graspsync.EventID, addresses []string) {
	x.mu.RLock()
	t := x.tables
	x.mu.RUnlock()
	top := func(ref graspsync.RepoRef, r *indexRepo) {
		if r != nil && r.ann != nil {
			addresses = append(addresses, ref.String())
		}
	}
	root := func(id graspsync.EventID) {
		if _, _, is := t.threads.top(refKey(id)); is {
			ids = append(ids, id)
		}
	}
	below := func(n *threadNode) {
		if n.place.depth != depth {
			return
		}
		ids = append(ids, n.id)
		if n.address != "" {
			addresses = append(addresses, n.address)
		}
	}
	switch {
	case of == nil && depth == 0:
		each(x, maps.All(t.repos), top)
		each(x, t.roots.all(), func(id graspsync.EventID, _ indexRoot) { root(id) })
	case of == nil:
		each(x, maps.All(t.threads.nodes), func(k refKey, n *threadNode) {
			if k == n.keys()[0] {
				below(n)
			}
		})
	default:
		each(x, maps.All(of), func(ref graspsync.RepoRef, _ struct{}) {
			r := t.repos[ref]
			if r == nil {
				return
			}
			if depth == 0 {
				top(ref, r)
			}
			branches := []refKey{addressRef(ref.String())}
			for n := range r.roots.All() {
				id := t.roots.at(n).id
				if depth == 0 {
					root(id)
				}
				branches = append(branches, refKey(id))
			}
			for _, k := range branches {
				for n := range t.threads.branches[k] {
					if depth > 0 {
						below(n)
					}
				}
			}
		})
	}
	slices.SortFunc(ids, graspsync.EventID.Compare)
	slices.Sort(addresses)
	return slices.Compact(ids), slices.Compact(addresses)
}
