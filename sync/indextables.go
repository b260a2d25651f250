package sync

import (
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/dense"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// indexChange says what a change of the index was: facts as they are now.
type indexChange struct {
	// The announcement by which a repository is ours now, nil if it is not.
	repos map[graspsync.RepoRef]*nip34.Announcement
	// The repositories that a root event tags, whether ours or not; nil if it is
	// gone. A repository that becomes ours comes with all of its root events.
	roots map[graspsync.EventID][]graspsync.RepoRef
	// The repositories of what a descendant hangs on, nil if it is gone. A repository that
	// becomes ours comes with all that are known.
	descendants map[filters.Descendant][]graspsync.RepoRef
	leftOut     int // descendants for which there was no room
	// The repositories that were not ours: what descends from them may be stored.
	fresh map[graspsync.RepoRef]struct{}
	// The identifiers with other announcements than before, whether ours or not.
	names map[string]struct{}
	// Something panicked, of ours or the policy's, so that not all of the change is here or in the index: only another
	// scan knows.
	broken bool
}

// size is how many things have changed.
func (c *indexChange) size() int {
	return max(len(c.repos)+len(c.roots)+len(c.descendants), len(c.names))
}

func (c *indexChange) empty() bool {
	return c.size() == 0 && c.leftOut == 0 && len(c.fresh) == 0 && !c.broken
}

// beside is what of a change is not in what the index says of all that there is.
func (c *indexChange) beside() indexChange {
	return indexChange{leftOut: c.leftOut, fresh: c.fresh, broken: c.broken}
}

// merge adds a change that happened after c.
func (c *indexChange) merge(later indexChange) {
	for ref, a := range later.repos {
		c.setRepo(ref, a)
	}
	for id, refs := range later.roots {
		c.setRoot(id, refs)
	}
	for name := range later.names {
		c.setName(name)
	}
	for of, refs := range later.descendants {
		c.setDescendant(of, refs)
	}
	c.leftOut += later.leftOut
	c.broken = c.broken || later.broken
	for ref := range later.fresh {
		c.setFresh(ref)
	}
}

// The setters, and leaveOut, do nothing on a nil indexChange, for callers that do not want
// to know.
func (c *indexChange) setRepo(ref graspsync.RepoRef, a *nip34.Announcement) {
	if c != nil {
		lazy.Put(&c.repos, ref, a)
	}
}

func (c *indexChange) setName(identifier string) {
	if c != nil {
		lazy.Put(&c.names, identifier, struct{}{})
	}
}

func (c *indexChange) setBroken() {
	if c != nil {
		c.broken = true
	}
}

func (c *indexChange) setRoot(id graspsync.EventID, refs []graspsync.RepoRef) {
	if c != nil {
		lazy.Put(&c.roots, id, refs)
	}
}

func (c *indexChange) setDescendant(of filters.Descendant, refs []graspsync.RepoRef) {
	if c != nil {
		lazy.Put(&c.descendants, of, refs)
	}
}

func (c *indexChange) leaveOut() {
	if c != nil {
		c.leftOut++
	}
}

func (c *indexChange) setFresh(ref graspsync.RepoRef) {
	if c != nil {
		lazy.Put(&c.fresh, ref, struct{}{})
	}
}

// indexTables is the memory of an index.
type indexTables struct {
	repos map[graspsync.RepoRef]*indexRepo // announced, or tagged by a root event
	named map[string][]*nip34.Announcement // ours by identifier; elements never change
	// All announcements by identifier, ours or not; elements never change.
	family      map[string][]*nip34.Announcement
	generations map[string]*generation           // of that: another one after each change
	known       *nip34.Known                     // by that
	byID        map[graspsync.EventID]*indexRepo // by the id of the newest announcement
	roots       *indexRoots
	threads     *threads
	// What was deleted lately, for what is reported later than its deletion: the
	// time up to which announcements are gone, and single ids.
	ended    *limit.Table[graspsync.RepoRef, nostr.Timestamp]
	erased   *limit.Table[authored, struct{}]
	vanished *limit.Table[graspsync.PubKey, nostr.Timestamp]
	// Where authors have announcements and root events, so that what vanishes is found
	// without looking at everything.
	wrote map[unique.Handle[graspsync.PubKey]]map[*indexRepo]int
	// doubted: the policy panicked over an announcement, of which is here what was known before.
	doubted bool
}

// generation is told from others by where it is.
type generation struct{ _ byte }

type indexRepo struct {
	ref    graspsync.RepoRef
	newest graspsync.Stamp     // of its announcement, ours or not; zero: none is here
	stored *nip34.Announcement // that one; nil: none is here
	ann    *nip34.Announcement // nil: not ours
	// relative: it came while its owner was listed, and is not ours. One that was there before we
	// looked may be there for any reason, and is none. One by which a repository was taken from us
	// is none either: it keeps out the versions by which it was ours.
	relative bool
	roots    dense.Set[rootNumber]
	// What most root events tag: just itself. Neither ever changes.
	alone  []*indexRepo
	itself []graspsync.RepoRef
}

// authored is an id as its supposed author names it.
type authored struct {
	id     graspsync.EventID
	author graspsync.PubKey
}

func newIndexTables() *indexTables {
	roots := newIndexRoots()
	return &indexTables{
		generations: make(map[string]*generation), known: nip34.NewKnown(),

		repos:  make(map[graspsync.RepoRef]*indexRepo),
		named:  make(map[string][]*nip34.Announcement),
		family: make(map[string][]*nip34.Announcement),
		byID:   make(map[graspsync.EventID]*indexRepo),
		roots:  roots,
		wrote:  make(map[unique.Handle[graspsync.PubKey]]map[*indexRepo]int),

		ended:    limit.NewTable[graspsync.RepoRef, nostr.Timestamp](maxRecent, 0),
		erased:   limit.NewTable[authored, struct{}](maxRecent, 0),
		vanished: limit.NewTable[graspsync.PubKey, nostr.Timestamp](maxRecent, 0),

		threads: newThreads(roots),
	}
}

// repo returns the entry of ref, making one if there is none.
func (t *indexTables) repo(ref graspsync.RepoRef) *indexRepo {
	if r, ok := t.repos[ref]; ok {
		return r
	}
	r := &indexRepo{ref: cloneRef(ref)}
	r.alone, r.itself = []*indexRepo{r}, []graspsync.RepoRef{r.ref}
	t.repos[r.ref] = r
	return r
}

// announce takes in a version of an announcement; the newest one counts, whether
// it makes the repository ours or not.
func (t *indexTables) announce(a *nip34.Announcement, listed bool, c *indexChange) {
	if until, ok := t.vanished.Get(a.Ref.Owner); ok && a.CreatedAt <= until {
		return
	}
	if until, ok := t.ended.Get(a.Ref); ok && a.CreatedAt <= until {
		return
	}
	if _, ok := t.erased.Get(authored{a.ID, a.Ref.Owner}); ok {
		return
	}
	r := t.repo(a.Ref)
	if r.newest != (graspsync.Stamp{}) && !a.Stamp().Newer(r.newest) {
		return
	}
	t.set(r, a, listed, c)
}

// end executes a deletion of a repository's announcements up to a time, also of those that are
// reported later.
func (t *indexTables) end(ref graspsync.RepoRef, until nostr.Timestamp, c *indexChange) {
	if before, ok := t.ended.Get(ref); !ok || until > before {
		t.ended.Put(cloneRef(ref), ownerStranger(ref.Owner), 0, until)
	}
	if r := t.repos[ref]; r != nil && r.newest.CreatedAt <= until {
		t.set(r, nil, false, c)
	}
}

// set makes an announcement the newest of a repository, nil for none, which makes it ours
// or not.
func (t *indexTables) set(r *indexRepo, stored *nip34.Announcement, ours bool, c *indexChange) {
	var v graspsync.Stamp
	if stored != nil {
		v = stored.Stamp()
	}
	a := stored
	if !ours {
		a = nil
	}
	listed := t.known.Has(r.ref.Identifier, r.ref.Owner)
	replaced(t.family, r.ref.Identifier, r.stored, stored)
	t.known.Remove(r.stored)
	t.known.Add(stored)
	c.setName(r.ref.Identifier)
	if t.family[r.ref.Identifier] == nil {
		delete(t.generations, r.ref.Identifier)
	} else {
		t.generations[r.ref.Identifier] = new(generation)
	}
	switch {
	case stored == nil, ours, r.ann != nil: // the last: its owner took it from us
		r.relative = false
	case r.stored == nil:
		r.relative = listed
	}
	r.stored = stored
	owner := unique.Make(r.ref.Owner)
	if r.newest != (graspsync.Stamp{}) {
		delete(t.byID, r.newest.ID)
		t.count(owner, r, -1)
	}
	if r.newest = v; v != (graspsync.Stamp{}) {
		t.byID[v.ID] = r
		t.count(owner, r, 1)
	}
	before := r.ann
	r.ann = a
	if before != nil || a != nil {
		replaced(t.named, r.ref.Identifier, before, a)
		c.setRepo(r.ref, a)
	}
	if (before == nil) != (a == nil) {
		t.threads.stands(r, c)
	}
	if before == nil && a != nil {
		t.report(r, c)
	}
	t.release(r)
}

// count adds to how much of an author is in a repository.
func (t *indexTables) count(author unique.Handle[graspsync.PubKey], r *indexRepo, n int) {
	in := t.wrote[author]
	if in == nil {
		in = make(map[*indexRepo]int, 1)
		t.wrote[author] = in
	}
	if in[r] += n; in[r] <= 0 {
		delete(in, r)
	}
	if len(in) == 0 {
		delete(t.wrote, author)
	}
}

// replaced replaces one announcement of an identifier by another; either may be nil.
// Readers may hold the slice, so what is in it stays as it is.
func replaced(named map[string][]*nip34.Announcement, identifier string, before, after *nip34.Announcement) {
	same := named[identifier]
	if before != nil {
		same = slices.DeleteFunc(slices.Clone(same), func(a *nip34.Announcement) bool { return a == before })
	}
	if after != nil {
		same = append(same, after)
	}
	if named[identifier] = same; len(same) == 0 {
		delete(named, identifier)
	}
}

// report adds the root events of a repository, and what descends from it, to a change.
func (t *indexTables) report(r *indexRepo, c *indexChange) {
	if c == nil {
		return
	}
	for n := range r.roots.All() {
		root := t.roots.at(n)
		c.setRoot(root.id, root.refs())
		t.threads.reportBelow(refKey(root.id), c)
	}
	t.threads.reportBelow(addressRef(r.ref.String()), c)
}

// release forgets a repository that nothing is known of.
func (t *indexTables) release(r *indexRepo) {
	if r.newest == (graspsync.Stamp{}) && r.roots.Len() == 0 {
		delete(t.repos, r.ref)
	}
}

func (t *indexTables) addRoot(
	id graspsync.EventID, author graspsync.PubKey, at nostr.Timestamp, refs []graspsync.RepoRef, c *indexChange,
) {
	known := t.roots.get(id) != nil
	_, erased := t.erased.Get(authored{id, author})
	until, vanished := t.vanished.Get(author)
	if known || erased || (vanished && at <= until) {
		return
	}
	repos := make([]*indexRepo, len(refs))
	for i, ref := range refs {
		repos[i] = t.repo(ref)
	}
	root := indexRoot{id, unique.Make(author), at, &repos}
	if len(repos) == 1 {
		root.repos = &repos[0].alone
	}
	n := t.roots.add(root)
	for _, r := range repos {
		r.roots.Add(n)
		t.count(root.author, r, 1)
	}
	c.setRoot(id, root.refs())
	t.threads.settle(t.threads.below(refKey(id)), c)
}

// addNode takes in a stored event that may descend from something of ours.
func (t *indexTables) addNode(a *threadReply, c *indexChange) {
	author := a.author.Value()
	if _, erased := t.erased.Get(authored{a.id, author}); erased {
		return
	}
	if until, ok := t.vanished.Get(author); ok && a.at <= until {
		return
	}
	t.threads.add(a, c)
}

// erase executes the deletion of an id by somebody who claims to be its author, also if the event is
// reported later.
func (t *indexTables) erase(id graspsync.EventID, author graspsync.PubKey, c *indexChange) {
	t.erased.Put(authored{id, author}, ownerStranger(author), 0, struct{}{})
	root := t.roots.get(id)
	repo, isRepo := t.byID[id]
	if (root != nil && root.author.Value() == author) || (isRepo && repo.ref.Owner == author) {
		t.forget(id, c)
	}
	t.threads.remove(refKey(id), author, c)
}

// vanish executes an author's request to vanish.
func (t *indexTables) vanish(author graspsync.PubKey, until nostr.Timestamp, c *indexChange) {
	if before, ok := t.vanished.Get(author); !ok || until > before {
		t.vanished.Put(author, limit.Stranger{}, 0, until)
	}
	by := unique.Make(author)
	for _, r := range slices.Collect(maps.Keys(t.wrote[by])) {
		if r.ref.Owner == author && r.newest != (graspsync.Stamp{}) && r.newest.CreatedAt <= until {
			t.set(r, nil, false, c)
		}
		for _, n := range slices.Collect(r.roots.All()) {
			if root := t.roots.at(n); root.author == by && root.at <= until {
				t.forget(root.id, c)
			}
		}
	}
	t.threads.vanish(author, until, c)
}

// forget drops an announcement, a root event or what descends from one.
func (t *indexTables) forget(id graspsync.EventID, c *indexChange) {
	if r, ok := t.byID[id]; ok {
		t.set(r, nil, false, c)
	}
	n, ok := t.roots.number(id)
	if !ok {
		t.threads.remove(refKey(id), graspsync.PubKey{}, c)
		return
	}
	root := *t.roots.at(n)
	t.roots.remove(n)
	for _, r := range *root.repos {
		r.roots.Remove(n)
		t.count(root.author, r, -1)
		t.release(r)
	}
	c.setRoot(id, nil)
	t.threads.settle(t.threads.below(refKey(id)), c)
}

// difference returns the changes that turn t into now.
func (t *indexTables) difference(now *indexTables) (c indexChange) {
	first := len(t.byID) == 0 // nothing was judged by what was here before
	if t.roots.len() == 0 {
		c.roots = make(map[graspsync.EventID][]graspsync.RepoRef, now.roots.len())
	}
	for ref, r := range now.repos {
		before := t.announcement(ref)
		if r.ann == nil || (before != nil && before.ID == r.ann.ID) {
			continue
		}
		c.setRepo(ref, r.ann)
		if before == nil {
			now.report(r, &c)
		}
	}
	for ref := range t.repos {
		if t.announcement(ref) != nil && now.announcement(ref) == nil {
			c.setRepo(ref, nil)
		}
	}
	for id, root := range now.roots.all() {
		if t.roots.get(id) == nil {
			c.setRoot(id, root.refs())
		}
	}
	for id := range t.roots.all() {
		if now.roots.get(id) == nil {
			c.setRoot(id, nil)
		}
	}
	t.threads.differs(now.threads, &c)
	c.broken = now.doubted
	if first {
		return c
	}
	for id, r := range now.byID {
		if t.byID[id] == nil {
			c.setName(r.ref.Identifier)
		}
	}
	for id, r := range t.byID {
		if now.byID[id] == nil {
			c.setName(r.ref.Identifier)
		}
	}
	return c
}

func (t *indexTables) announcement(ref graspsync.RepoRef) *nip34.Announcement {
	if r := t.repos[ref]; r != nil {
		return r.ann
	}
	return nil
}

func cloneRef(ref graspsync.RepoRef) graspsync.RepoRef {
	ref.Identifier = strings.Clone(ref.Identifier)
	return ref
}

// maxRecent is the maximum number of deletions of each kind that are kept for events that are reported
// after them, as a slow hook of the relay does. Authors share it. The daily scan finds the rest.
const maxRecent = 16_384

func ownerStranger(owner graspsync.PubKey) limit.Stranger {
	return limit.Stranger{ID: string(owner[:])}
}
