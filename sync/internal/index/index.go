package index

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unique"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/limit"
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

// Change is a change of the index, as the new state of each changed entry.
type Change struct {
	// The accepted announcement; nil if the repository is not hosted.
	Repos map[graspsync.RepoRef]*nip34.Announcement
	// The repositories that a root event tags, hosted or not; nil if it was removed. A repository
	// that becomes hosted comes with all its root events and replies.
	Roots map[graspsync.EventID][]graspsync.RepoRef
	// The repositories of a reply; nil if it was removed.
	Descendants map[filters.Descendant][]graspsync.RepoRef
	LeftOut     int // replies without room
	Names       map[string]struct{}
	// A panic has made the index incomplete. Only a scan can repair it.
	Broken bool
}

// Size returns the number of changed entries.
func (c *Change) Size() int {
	return max(len(c.Repos)+len(c.Roots)+len(c.Descendants), len(c.Names))
}

// Empty reports whether nothing has changed.
func (c *Change) Empty() bool {
	return c.Size() == 0 && c.LeftOut == 0 && !c.Broken
}

// WithoutEntries returns the part that does not name entries.
func (c *Change) WithoutEntries() Change {
	return Change{LeftOut: c.LeftOut, Broken: c.Broken}
}

// Merge adds a later change.
func (c *Change) Merge(later Change) {
	for ref, a := range later.Repos {
		c.SetRepo(ref, a)
	}
	for id, refs := range later.Roots {
		c.setRoot(id, refs)
	}
	for name := range later.Names {
		c.SetName(name)
	}
	for of, refs := range later.Descendants {
		c.setDescendant(of, refs)
	}
	c.LeftOut += later.LeftOut
	c.Broken = c.Broken || later.Broken
}

// SetRepo sets an announcement.
func (c *Change) SetRepo(ref graspsync.RepoRef, a *nip34.Announcement) { lazy.Put(&c.Repos, ref, a) }

// SetName adds an identifier.
func (c *Change) SetName(identifier string) { lazy.Put(&c.Names, identifier, struct{}{}) }

func (c *Change) setRoot(id graspsync.EventID, refs []graspsync.RepoRef) {
	lazy.Put(&c.Roots, id, refs)
}

func (c *Change) setDescendant(of filters.Descendant, refs []graspsync.RepoRef) {
	lazy.Put(&c.Descendants, of, refs)
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

// Stored applies a durable event of any kind. The change contains repositories, root events and
// replies that become wanted or unwanted. Events may be reported in another order than stored.
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

// Reply applies a stored event. is reports whether it is a reply in a hosted repository.
func (x *Index) Reply(ev graspsync.Event) (c Change, is bool) {
	c = x.change(func() Change { return x.apply(storingNode(ev), false) })
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.tables.threads.nodes[refKey(ev.ID)]
	return c, n != nil && n.place.depth > 0
}

// update is a change of the tables, made without the lock and applied under the lock.
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

// HeldChanged adds the identifier of an announcement that is or was held to news.
func (x *Index) HeldChanged(ev graspsync.Event) {
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
	op := x.storingTop(ev)
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

// storingTop returns the update for an event that is no reply, or nil.
func (x *Index) storingTop(ev graspsync.Event) update {
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
	case x.us.IsVanishRequest(ev.Event):
		return storingVanish(ev)
	}
	return nil
}

// Listed reports whether the Policy hosts the repository. sure is false after a panic.
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
	ids, addresses := nip34.DeletionTargets(ev)
	author, until := ev.PubKey, ev.CreatedAt
	return func(t *tables, c *Change) {
		for _, id := range ids {
			t.deleteByAuthor(id, author, c)
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

type tables struct {
	repos   map[graspsync.RepoRef]*repoEntry // that are announced, or tagged by a root event
	family  map[string][]*nip34.Announcement // by identifier; each change makes a new slice
	byID    map[graspsync.EventID]*repoEntry // by the id of the newest announcement
	roots   map[graspsync.EventID]*rootEntry
	threads *threads

	scan uint32
	// removed events, and addresses of stored and removed announcements, since the start of the
	// scan
	reported *limit.Table[refKey, struct{}]
	// Recent deletions by time, for events that are reported after their deletion.
	deleted *limit.Table[deletion, nostr.Timestamp]
	// The repositories in which an author has events, for requests to vanish.
	wrote  map[unique.Handle[graspsync.PubKey]]map[*repoEntry]int
	hosted int
}

type repoEntry struct {
	ref    graspsync.RepoRef
	newest graspsync.EventKey // of its newest announcement; zero: none
	stored *nip34.Announcement
	ann    *nip34.Announcement // nil: not hosted
	roots  map[*rootEntry]struct{}
	seen   uint32 // the last scan that has shown it
	// The repository itself, which most root events tag. Immutable.
	alone  []*repoEntry
	itself []graspsync.RepoRef
}

type rootEntry struct {
	id     graspsync.EventID
	author unique.Handle[graspsync.PubKey]
	at     nostr.Timestamp
	repos  []*repoEntry
	seen   uint32 // the last scan that has shown it
}

func (r *rootEntry) refs() []graspsync.RepoRef {
	if len(r.repos) == 1 {
		return r.repos[0].itself
	}
	refs := make([]graspsync.RepoRef, len(r.repos))
	for i, repo := range r.repos {
		refs[i] = repo.ref
	}
	return refs
}

func (r *rootEntry) owner() *repoEntry {
	for _, repo := range r.repos {
		if repo.ann != nil {
			return repo
		}
	}
	return nil
}

// deletion identifies the events of an author that a deletion or request to vanish covers.
type deletion struct {
	author graspsync.PubKey
	of     refKey // or everything
}

var everything = addressRef("")

func (t *tables) delete(d deletion, until nostr.Timestamp) {
	if before, ok := t.deleted.Get(d); !ok || until > before {
		t.deleted.Put(d, ownerStranger(d.author), 0, until)
	}
}

func (t *tables) isDeleted(author graspsync.PubKey, at nostr.Timestamp, keys ...refKey) bool {
	return slices.ContainsFunc(append(keys, everything), func(k refKey) bool {
		until, ok := t.deleted.Get(deletion{author, k})
		return ok && at <= until
	})
}

func newTables() *tables {
	roots := make(map[graspsync.EventID]*rootEntry)
	return &tables{
		repos:    make(map[graspsync.RepoRef]*repoEntry),
		family:   make(map[string][]*nip34.Announcement),
		byID:     make(map[graspsync.EventID]*repoEntry),
		roots:    roots,
		wrote:    make(map[unique.Handle[graspsync.PubKey]]map[*repoEntry]int),
		deleted:  limit.NewTable[deletion, nostr.Timestamp](maxDeletions, 0),
		reported: limit.NewTable[refKey, struct{}](maxReported, 0),
		threads:  newThreads(roots),
	}
}

func (t *tables) repo(ref graspsync.RepoRef) *repoEntry {
	if r, ok := t.repos[ref]; ok {
		return r
	}
	r := &repoEntry{ref: cloneRef(ref), roots: make(map[*rootEntry]struct{})}
	r.alone, r.itself = []*repoEntry{r}, []graspsync.RepoRef{r.ref}
	t.repos[r.ref] = r
	return r
}

// announce applies a version of an announcement. Only the newest counts.
func (t *tables) announce(a *nip34.Announcement, listed bool, c *Change) {
	if t.isDeleted(a.Ref.Owner, a.CreatedAt, addressRef(a.Ref.String()), refKey(a.ID)) {
		return
	}
	r := t.repo(a.Ref)
	switch {
	case a.ID == r.newest.ID:
		if r.seen = t.scan; listed == (r.ann != nil) {
			return
		}
	case r.newest != (graspsync.EventKey{}) && !a.Key().Newer(r.newest):
		return
	}
	t.set(r, a, listed, c)
}

// end deletes the announcements of a repository up to a time, even if they are reported later.
func (t *tables) end(ref graspsync.RepoRef, until nostr.Timestamp, c *Change) {
	t.delete(deletion{ref.Owner, addressRef(ref.String())}, until)
	if r := t.repos[ref]; r != nil && r.stored != nil && r.newest.CreatedAt <= until {
		t.set(r, nil, false, c)
	}
}

func (t *tables) set(r *repoEntry, stored *nip34.Announcement, ours bool, c *Change) {
	var v graspsync.EventKey
	if stored != nil {
		v = stored.Key()
	}
	a := stored
	if !ours {
		a = nil
	}
	t.replaceInFamily(r.ref.Identifier, r.stored, stored)
	c.SetName(r.ref.Identifier)
	r.stored, r.seen = stored, t.scan
	owner := unique.Make(r.ref.Owner)
	if r.newest != (graspsync.EventKey{}) {
		delete(t.byID, r.newest.ID)
		t.count(owner, r, -1)
	}
	if r.newest = v; v != (graspsync.EventKey{}) {
		t.byID[v.ID] = r
		t.count(owner, r, 1)
	}
	before := r.ann
	r.ann = a
	if before != nil || a != nil {
		c.SetRepo(r.ref, a)
	}
	switch {
	case before == nil && a != nil:
		t.hosted++
		t.threads.hostedChanged(r, c)
		t.change(r, c)
	case before != nil && a == nil:
		t.hosted--
		t.threads.hostedChanged(r, c)
	}
	t.release(r)
}

func (t *tables) count(author unique.Handle[graspsync.PubKey], r *repoEntry, n int) {
	in := t.wrote[author]
	if in == nil {
		in = make(map[*repoEntry]int, 1)
		t.wrote[author] = in
	}
	if in[r] += n; in[r] <= 0 {
		delete(in, r)
	}
	if len(in) == 0 {
		delete(t.wrote, author)
	}
}

// replaceInFamily replaces one announcement by another. It copies the slice, because readers may use
// it.
func (t *tables) replaceInFamily(identifier string, before, after *nip34.Announcement) {
	same := slices.DeleteFunc(slices.Clone(t.family[identifier]), func(a *nip34.Announcement) bool { return a == before })
	if after != nil {
		same = append(same, after)
	}
	if t.family[identifier] = same; len(same) == 0 {
		delete(t.family, identifier)
	}
}

func (t *tables) change(r *repoEntry, c *Change) {
	for root := range r.roots {
		c.setRoot(root.id, root.refs())
		t.threads.reportBelow(refKey(root.id), c)
	}
	t.threads.reportBelow(addressRef(r.ref.String()), c)
}

func (t *tables) release(r *repoEntry) {
	if r.newest == (graspsync.EventKey{}) && len(r.roots) == 0 {
		delete(t.repos, r.ref)
	}
}

func (t *tables) addRoot(
	id graspsync.EventID, author graspsync.PubKey, at nostr.Timestamp, refs []graspsync.RepoRef, c *Change,
) {
	if root := t.roots[id]; root != nil {
		root.seen = t.scan
		return
	}
	if t.isDeleted(author, at, refKey(id)) {
		return
	}
	repos := make([]*repoEntry, len(refs))
	for i, ref := range refs {
		repos[i] = t.repo(ref)
	}
	if len(repos) == 1 {
		repos = repos[0].alone
	}
	root := &rootEntry{id, unique.Make(author), at, repos, t.scan}
	t.roots[id] = root
	for _, r := range repos {
		r.roots[root] = struct{}{}
		t.count(root.author, r, 1)
	}
	c.setRoot(id, root.refs())
	t.threads.settle(t.threads.below(refKey(id)), c)
}

func (t *tables) addNode(a *reply, c *Change) {
	if !t.isDeleted(a.author.Value(), a.at, refKey(a.id)) {
		t.threads.add(a, t.scan, c)
	}
}

// deleteByAuthor deletes an event for its claimed author, even if it is reported later.
func (t *tables) deleteByAuthor(id graspsync.EventID, author graspsync.PubKey, c *Change) {
	t.delete(deletion{author, refKey(id)}, math.MaxInt64)
	root := t.roots[id]
	repo, isRepo := t.byID[id]
	if (root != nil && root.author.Value() == author) || (isRepo && repo.ref.Owner == author) {
		t.forget(id, c)
	}
	t.threads.remove(refKey(id), author, c)
}

func (t *tables) vanish(author graspsync.PubKey, until nostr.Timestamp, c *Change) {
	t.delete(deletion{author, everything}, until)
	by := unique.Make(author)
	for _, r := range slices.Collect(maps.Keys(t.wrote[by])) {
		if r.ref.Owner == author && r.newest != (graspsync.EventKey{}) && r.newest.CreatedAt <= until {
			t.set(r, nil, false, c)
		}
		for _, root := range slices.Collect(maps.Keys(r.roots)) {
			if root.author == by && root.at <= until {
				t.forget(root.id, c)
			}
		}
	}
	t.threads.vanish(author, until, c)
}

func (t *tables) forget(id graspsync.EventID, c *Change) {
	if r, ok := t.byID[id]; ok {
		t.set(r, nil, false, c)
	}
	root := t.roots[id]
	if root == nil {
		t.threads.remove(refKey(id), graspsync.PubKey{}, c)
		return
	}
	delete(t.roots, id)
	for _, r := range root.repos {
		delete(r.roots, root)
		t.count(root.author, r, -1)
		t.release(r)
	}
	c.setRoot(id, nil)
	t.threads.settle(t.threads.below(refKey(id)), c)
}

func (t *tables) announcement(ref graspsync.RepoRef) *nip34.Announcement {
	if r := t.repos[ref]; r != nil {
		return r.ann
	}
	return nil
}

func cloneRef(ref graspsync.RepoRef) graspsync.RepoRef {
	ref.Identifier = strings.Clone(ref.Identifier)
	return ref
}

// maxDeletions is the maximum number of remembered deletions, for slow hooks of the relay. The
// daily scan corrects the rest.
const maxDeletions = 32_768

// removed and replaced events that a scan ignores
const maxReported = 100_000

func (t *tables) report(k refKey) { t.reported.Put(k, limit.Stranger{}, 0, struct{}{}) }

func (t *tables) reportVersion(ev graspsync.Event) {
	if k := versionRef(ev); k != (refKey{}) {
		t.report(k)
	}
}

func versionRef(ev graspsync.Event) (k refKey) {
	if ev.Kind == graspsync.KindAnnouncement {
		k = addressRef(graspsync.RepoRef{Owner: ev.PubKey, Identifier: ev.Tags.GetD()}.String())
	}
	return k
}

func ownerStranger(owner graspsync.PubKey) limit.Stranger {
	return limit.Stranger{ID: string(owner[:])}
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
