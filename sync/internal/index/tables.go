package index

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unique"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

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

// Beside returns the part that does not name entries.
func (c *Change) Beside() Change {
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

// end deletes the announcements of a repository up to a time, also those that are reported later.
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
		t.threads.stands(r, c)
		t.change(r, c)
	case before != nil && a == nil:
		t.hosted--
		t.threads.stands(r, c)
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

// erase deletes an event for its claimed author, even if it is reported later.
func (t *tables) erase(id graspsync.EventID, author graspsync.PubKey, c *Change) {
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
