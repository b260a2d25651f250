package index

import (
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

// Index contains the stored announcements and root events, and their replies. It does not read the
// Store. All methods may be called concurrently. Changes must be applied in the order in which
// Stored, Removed, Reply and the methods of a [Scan] return them, so only one caller calls these
// methods.
type Index struct {
	lists func(*nip34.Announcement) bool
	us    nip34.Identity // the service of requests to vanish

	panicked func(whose string, p any)

	mu     sync.RWMutex
	tables *tables
	// guarded by mu
	scanned bool                // a scan has ended
	news    map[string]struct{} // identifiers whose announcements have changed since TakeNews
	tooMany bool                // news exceeded maxNews and was dropped
}

// New returns an empty index. lists reports whether an announcement makes its repository hosted.
// panicked is called with a contained panic and its origin, unless it is nil.
func New(lists func(*nip34.Announcement) bool, us nip34.Identity, panicked func(whose string, p any)) *Index {
	return &Index{lists: lists, us: us, panicked: panicked, tables: newTables()}
}

// Announcements returns the accepted announcements with an identifier. They have no Event.
func (x *Index) Announcements(identifier string) (out []*nip34.Announcement) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, a := range x.tables.family[identifier] {
		if x.tables.repos[a.Ref].ann != nil {
			out = append(out, a)
		}
	}
	return out
}

// Announced reports whether a repository is hosted.
func (x *Index) Announced(ref graspsync.RepoRef) bool { return x.Announcement(ref) != nil }

// Left reports whether the newest stored announcement of a repository does not make it hosted.
func (x *Index) Left(ref graspsync.RepoRef) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	r := x.tables.repos[ref]
	return r != nil && r.ann == nil && r.newest != (graspsync.EventKey{})
}

// Family returns all stored announcements with an identifier. They have no Event.
func (x *Index) Family(identifier string) []*nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.Clip(x.tables.family[identifier])
}

// Revision returns a value that changes with Family and Announcements.
func (x *Index) Revision(identifier string) any {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if family := x.tables.family[identifier]; len(family) > 0 {
		return &family[0]
	}
	return 0
}

// Root reports whether id is a root event of a hosted repository.
func (x *Index) Root(id graspsync.EventID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	root := x.tables.roots[id]
	return root != nil && root.owner() != nil
}

// RootTime returns the time of a root event, or 0.
func (x *Index) RootTime(id graspsync.EventID) nostr.Timestamp {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if root := x.tables.roots[id]; root != nil {
		return root.at
	}
	return 0
}

// Stored applies a durable event of any kind, and returns what becomes wanted or unwanted: the
// repository of an announcement, a root event or a reply. The order of reports may differ from that of
// storing.
func (x *Index) Stored(ev graspsync.Event) Change {
	return x.change(func() Change { return x.apply(x.storing(ev), false) })
}

// Contain runs f and recovers a panic. Its event is not followed before the next scan.
func (x *Index) Contain(f func()) {
	defer func() {
		if p := recover(); p != nil {
			if x.panicked != nil {
				x.panicked("index", p)
			}
		}
	}()
	f()
}

func (x *Index) change(f func() Change) Change {
	c := Change{Broken: true}
	x.Contain(func() { c = f() })
	return c
}

// Removed applies the removal of an event that no other event replaced or deleted.
func (x *Index) Removed(ev graspsync.Event) Change {
	return x.change(func() Change {
		return x.apply(func(t *tables, c *Change) {
			t.report(refKey(ev.ID))
			t.reportVersion(ev)
			t.forget(ev.ID, c)
		}, false)
	})
}

// Reply applies a stored event that may be a reply. is reports whether it is one in a hosted
// repository.
func (x *Index) Reply(ev graspsync.Event) (c Change, is bool) {
	c = x.change(func() Change { return x.apply(storingNode(ev), false) })
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.tables.threads.nodes[refKey(ev.ID)]
	return c, n != nil && n.place.depth > 0
}

// update is a change of the tables, made without a lock and applied with it.
type update func(t *tables, c *Change)

// apply applies an update. quiet means that no earlier verdict depends on it.
func (x *Index) apply(op update, quiet bool) (c Change) {
	if op == nil {
		return c
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if op(x.tables, &c); !quiet {
		x.renew(c.Names)
	}
	return c
}

const maxNews = 10_000

// Note adds the identifier of an announcement that is or was held to news.
func (x *Index) Note(ev graspsync.Event) {
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.renew(map[string]struct{}{strings.Clone(a.Ref.Identifier): {}})
	}
}

func (x *Index) renew(names map[string]struct{}) {
	for name := range names {
		if x.tooMany = x.tooMany || len(x.news) >= maxNews; x.tooMany {
			x.news = nil
			return
		}
		lazy.Put(&x.news, name, struct{}{})
	}
}

// TakeNews returns the identifiers whose announcements have changed since the last call, or
// tooMany.
func (x *Index) TakeNews() (names map[string]struct{}, tooMany bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	names, tooMany = x.news, x.tooMany
	x.news, x.tooMany = nil, false
	return names, tooMany
}

func (x *Index) storing(ev graspsync.Event) update {
	op := x.standing(ev)
	if op == nil {
		op = storingNode(ev)
	}
	if op == nil {
		return nil
	}
	return func(t *tables, c *Change) {
		t.reported.Delete(refKey(ev.ID))
		t.reportVersion(ev)
		op(t, c)
	}
}

func storingNode(ev graspsync.Event) update {
	a := replyOf(ev)
	if a == nil {
		return nil
	}
	return func(t *tables, c *Change) { t.addNode(a, c) }
}

// standing returns the update for an event that is no reply, or nil.
func (x *Index) standing(ev graspsync.Event) update {
	switch {
	case ev.Kind == graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil {
			return nil
		}
		listed, sure := x.Listed(a)
		if !sure {
			return asBefore(a.Ref)
		}
		a = WithoutEvent(a)
		return func(t *tables, c *Change) { t.announce(a, listed, c) }
	case nip34.IsRoot(ev.Kind):
		return storingRoot(ev)
	case ev.Kind == graspsync.KindDeletion:
		return storingDeletion(ev)
	case x.us.Vanishes(ev.Event):
		return storingVanish(ev)
	}
	return nil
}

// Listed calls lists. sure is false if it panicked.
func (x *Index) Listed(a *nip34.Announcement) (yes, sure bool) {
	defer func() {
		if p := recover(); p != nil && x.panicked != nil {
			x.panicked("policy", p)
		}
	}()
	return x.lists(a), true
}

// ListedBy returns an announcement that lists accepts, or nil.
func (x *Index) ListedBy(ev graspsync.Event) *nip34.Announcement {
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil {
		return nil
	}
	if yes, _ := x.Listed(a); !yes {
		return nil
	}
	return a
}

// asBefore keeps the known state of a repository after a panic of the Policy until the next scan.
func asBefore(ref graspsync.RepoRef) update {
	return func(t *tables, c *Change) {
		c.Broken = true
		if r := t.repos[ref]; r != nil {
			r.seen = t.scan
		}
	}
}

func storingRoot(ev graspsync.Event) update {
	refs := nip34.RootRefs(ev.Event)
	if len(refs) == 0 {
		return nil
	}
	id, author, at := ev.ID, ev.PubKey, ev.CreatedAt
	return func(t *tables, c *Change) { t.addRoot(id, author, at, refs, c) }
}

func storingVanish(ev graspsync.Event) update {
	author, until := ev.PubKey, ev.CreatedAt
	return func(t *tables, c *Change) { t.vanish(author, until, c) }
}

func storingDeletion(ev graspsync.Event) update {
	ids, addresses := nip34.Deletes(ev)
	author, until := ev.PubKey, ev.CreatedAt
	return func(t *tables, c *Change) {
		for _, id := range ids {
			t.erase(id, author, c)
		}
		for _, a := range addresses {
			if a.Kind == graspsync.KindAnnouncement {
				t.end(graspsync.RepoRef{Owner: author, Identifier: a.Identifier}, until, c)
			} else {
				t.threads.end(a, until, c)
			}
		}
	}
}

// WithoutEvent returns a copy without the event, which may take 500 KB.
func WithoutEvent(a *nip34.Announcement) *nip34.Announcement {
	b := *a
	b.Event = nil
	b.Name = strings.Clone(a.Name)
	b.Ref = cloneRef(a.Ref)
	return &b
}

// Size returns the number of entries.
func (x *Index) Size() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.tables.repos) + len(x.tables.roots) + x.tables.threads.placed.Len()
}

// Hosted returns the number of hosted repositories.
func (x *Index) Hosted() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.hosted
}

// entries that are read before the lock is released
const allStep = 100

// All returns the whole index as one change. Concurrent changes may be included or not.
func (x *Index) All() (c Change) {
	t := x.tables
	x.mu.RLock()
	c.Repos = make(map[graspsync.RepoRef]*nip34.Announcement, t.hosted)
	c.Roots = make(map[graspsync.EventID][]graspsync.RepoRef, len(t.roots))
	x.mu.RUnlock()
	each(x, maps.All(t.repos), func(ref graspsync.RepoRef, r *repoEntry) {
		if r.ann != nil {
			c.SetRepo(ref, r.ann)
		}
	})
	each(x, maps.All(t.roots), func(id graspsync.EventID, root *rootEntry) { c.setRoot(id, root.refs()) })
	each(x, maps.All(t.threads.nodes), func(_ refKey, n *node) {
		if n.place.depth > 0 {
			c.setDescendant(n.key(), t.threads.reposBelow(n.place))
		}
	})
	return c
}

// each visits entries of the index and releases the lock after each allStep entries.
func each[K comparable, V any](x *Index, all iter.Seq2[K, V], visit func(K, V)) {
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

// Listing counts the hosted repositories that list a relay, with up to three examples.
func (x *Index) Listing(u graspsync.RelayURL) (n int, examples []graspsync.RepoRef) {
	each(x, maps.All(x.tables.repos), func(ref graspsync.RepoRef, r *repoEntry) {
		if r.ann != nil && slices.Contains(r.ann.Relays, u) {
			if n++; len(examples) < 3 {
				examples = append(examples, ref)
			}
		}
	})
	return n, examples
}

// Announcement returns the accepted announcement of a repository, or nil.
func (x *Index) Announcement(ref graspsync.RepoRef) *nip34.Announcement {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.tables.announcement(ref)
}

// Tops returns the hosted repositories and their root events, as tag values.
func (x *Index) Tops() (ids, addresses []string) {
	each(x, maps.All(x.tables.repos), func(ref graspsync.RepoRef, r *repoEntry) {
		if r.ann == nil {
			return
		}
		addresses = append(addresses, ref.String())
		for root := range r.roots {
			ids = append(ids, root.id.String())
		}
	})
	slices.Sort(ids) // a root event may have several repositories
	return slices.Compact(ids), addresses
}
