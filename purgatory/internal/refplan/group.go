// Package refplan plans a release as pure values. Its input is a [Group], the events of all
// repositories with one identifier, and a [Repository] of the group. It decides which state counts,
// which refs change, which objects are missing, and which events may be served.
package refplan

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Group holds the known events of all repositories with one identifier.
type Group struct {
	Identifier string
	Family     *nip34.AnnouncementSet // members of each repository
	Accepted   map[graspsync.RepoRef]*nip34.Announcement
	Held       map[graspsync.RepoRef]Entry // held announcements
	States     []Entry
	Pulls      []Entry
	Relatives  []Entry // held announcements of listed maintainers
	Stored     []*nip34.State
	Over       []Ended // events whose holds end
	Why        Reasons // why the events were read
}

// Ours returns the repositories whose announcements are accepted or held.
func (g *Group) Ours() map[graspsync.RepoRef]struct{} {
	refs := make(map[graspsync.RepoRef]struct{}, len(g.Accepted)+len(g.Held))
	for ref := range g.Accepted {
		refs[ref] = struct{}{}
	}
	for ref := range g.Held {
		refs[ref] = struct{}{}
	}
	return refs
}

// IsOurs reports whether the announcement of a repository is accepted or held.
func (g *Group) IsOurs(ref graspsync.RepoRef) bool {
	_, held := g.Held[ref]
	return held || g.Accepted[ref] != nil
}

// SortAnnouncement adds a held announcement, unless a newer version is accepted.
func (g *Group) SortAnnouncement(e Entry) {
	a := e.Announces
	if served := g.Accepted[a.Ref]; served != nil && served.Key().Newer(a.Key()) {
		g.Over = append(g.Over, Ended{e, Replaced})
		return
	}
	g.Held[a.Ref] = e
}

// Repository returns a new Repository with its members.
func (g *Group) Repository(ref graspsync.RepoRef) *Repository {
	return &Repository{
		Ref: ref, Members: g.Family.Authority(ref).Members(), Active: g.Accepted[ref] != nil,
		Found: make(map[nip34.ObjectID]struct{}), Missing: make(map[nip34.ObjectID]struct{}),
		Kinds: make(map[nip34.ObjectID]Kind),
	}
}

// Reasons are the reasons for a survey or release.
type Reasons struct {
	// Authors are authors of new events, whose data is fetched as if it were new. An announcement
	// may name new servers. The value is true for clients.
	Authors map[graspsync.PubKey]bool
	// Gained are repositories that received objects which others may lack.
	Gained map[graspsync.RepoRef]bool
	// Left are repositories that may have lost their announcement.
	Left map[graspsync.RepoRef]bool
	// Deleters are authors whose events may be deleted. The relay is asked about them.
	Deleters map[graspsync.PubKey]bool
	Check    bool // hourly check, which includes stored events
}

// AsksOf reports whether the relay is asked about an author's events.
func (c Reasons) AsksOf(author graspsync.PubKey) bool { return c.Check || c.Deleters[author] }

// And returns the union.
func (c Reasons) And(o Reasons) Reasons {
	return Reasons{
		Authors: joined(c.Authors, o.Authors), Gained: joined(c.Gained, o.Gained), Left: joined(c.Left, o.Left),
		Deleters: joined(c.Deleters, o.Deleters), Check: c.Check || o.Check,
	}
}

func joined[K comparable, V any](a, b map[K]V) map[K]V {
	if len(a) == 0 {
		return b
	}
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// Affected returns at most most hosted repositories that the reasons concern, and those that may have
// lost their announcement. Owners of held states come first, the others in random order. lacking
// are the repositories that lack data, or may lack it because they are being released.
func (g *Group) Affected(lacking map[graspsync.RepoRef]struct{}, most int, shuffle func(n int, swap func(i, j int))) (refs []graspsync.RepoRef, cut bool) {
	gone := maps.Clone(g.Why.Left)
	if gone == nil {
		gone = make(map[graspsync.RepoRef]bool)
	}
	for _, o := range g.Over {
		if g.EndsRepository(o) {
			gone[o.Entry.Repos[0]] = true
		}
	}
	var needed []*Repository
	for ref := range g.Ours() {
		delete(gone, ref)
		if r := g.Repository(ref); g.affects(r, lacking) {
			needed = append(needed, r)
		}
	}
	if cut = len(needed) > most; cut {
		shuffle(len(needed), func(i, j int) { needed[i], needed[j] = needed[j], needed[i] })
		slices.SortStableFunc(needed, func(a, b *Repository) int { return g.states(b) - g.states(a) })
		needed = needed[:most]
	}
	for _, r := range needed {
		refs = append(refs, r.Ref)
	}
	return slices.SortedFunc(slices.Values(slices.AppendSeq(refs, maps.Keys(gone))), graspsync.RepoRef.Compare), cut
}

// states returns 1 if the owner has a held state, else 0.
func (g *Group) states(r *Repository) int {
	if slices.ContainsFunc(g.States, func(h Entry) bool { return h.Repos[0] == r.Ref }) {
		return 1
	}
	return 0
}

func (g *Group) affects(r *Repository, lacking map[graspsync.RepoRef]struct{}) bool {
	if g.Why.Check || g.answered(r.Ref) || g.deleted(r) {
		return true
	}
	for author := range g.Why.Authors {
		if r.IsMember(author) {
			return true
		}
	}
	_, lacks := lacking[r.Ref]
	for ref := range g.Why.Gained {
		if lacks && ref != r.Ref && r.Related(g.Repository(ref)) {
			return true
		}
	}
	return false
}

// deleted reports whether a state of a member without another stored state may be deleted.
func (g *Group) deleted(r *Repository) bool {
	for author := range g.Why.Deleters {
		if r.IsMember(author) && !slices.ContainsFunc(g.Stored, func(s *nip34.State) bool { return s.Ref.Owner == author }) {
			return true
		}
	}
	return false
}

// answered reports whether a new announcement may add or remove a member of a repository.
func (g *Group) answered(ref graspsync.RepoRef) bool {
	if len(g.Why.Authors) == 0 {
		return false
	}
	listed, _ := g.Family.Wanted([]graspsync.PubKey{ref.Owner}, nip34.ServedBounds())
	for author := range g.Why.Authors {
		if _, ok := listed[author]; ok {
			return true
		}
	}
	return false
}

// FormatOf returns the object format of the newest state with refs, if any.
func (g *Group) FormatOf(r *Repository) (format nip34.ObjectFormat, known bool) {
	hasRefs := func(s *nip34.State) bool { return len(s.Refs) > 0 }
	if newest := g.newest(r, g.stored(r, hasRefs), hasRefs); newest != nil {
		for _, id := range newest.Refs {
			return id.Format(), true
		}
	}
	return nip34.SHA1, false
}

// StateObjects returns the objects of the states of r: the newest stored one, then the held ones of
// members from new to old.
func (g *Group) StateObjects(r *Repository) (sets []Objects) {
	add := func(s *nip34.State) {
		if ids, fits := ObjectsOf(s, r.Refs.Format); fits {
			sets = append(sets, Objects{IDs: ids, State: s})
		}
	}
	if s := g.NewestStored(r); s != nil {
		add(s)
	}
	for _, h := range slices.Backward(g.States) {
		if r.IsMember(h.Author) {
			add(h.State)
		}
	}
	return sets
}

// PullObjects returns the objects of pull requests.
func (g *Group) PullObjects(r *Repository) (sets []Objects) {
	for _, h := range g.Pulls {
		if slices.Contains(h.Repos, r.Ref) && h.Pull.Tip.Format() == r.Refs.Format {
			sets = append(sets, Objects{IDs: []nip34.ObjectID{h.Pull.Tip}})
		}
	}
	return sets
}

// Objects are objects that are useful only together.
type Objects struct {
	IDs   []nip34.ObjectID
	State *nip34.State // nil for a pull request
}

// ObjectsOf returns the distinct ids that a state names, sorted. fits reports whether all have the
// format.
func ObjectsOf(s *nip34.State, format nip34.ObjectFormat) (ids []nip34.ObjectID, fits bool) {
	fits = true
	for _, id := range s.Refs {
		fits = fits && id.Format() == format
		ids = append(ids, id)
	}
	return distinct(ids), fits
}

// IDsOf returns the distinct ids of objects, sorted.
func IDsOf(sets []Objects) (ids []nip34.ObjectID) {
	for _, set := range sets {
		ids = append(ids, set.IDs...)
	}
	return distinct(ids)
}

// Older compares versions, the oldest first.
func Older(a, b graspsync.EventKey) int {
	switch {
	case b.Newer(a):
		return -1
	case a.Newer(b):
		return 1
	}
	return 0
}

// Sources returns at most most repositories that may have missing objects of r, those of members
// first.
func (g *Group) Sources(r *Repository, most int, shuffle func([]graspsync.RepoRef)) (out []graspsync.RepoRef) {
	var others []graspsync.RepoRef
	for ref := range g.Ours() {
		switch {
		case ref == r.Ref:
		case r.IsMember(ref.Owner):
			out = append(out, ref)
		case r.Related(g.Repository(ref)) || slices.ContainsFunc(g.Pulls, func(h Entry) bool { // a pull request is for both
			return slices.Contains(h.Repos, r.Ref) && slices.Contains(h.Repos, ref)
		}):
			others = append(others, ref)
		}
	}
	shuffle(out)
	shuffle(others)
	out = append(out, others...)
	return out[:min(len(out), most)]
}

// NewestStored returns the newest stored state of a member, or nil.
func (g *Group) NewestStored(r *Repository) *nip34.State {
	return g.stored(r, func(*nip34.State) bool { return true })
}

func (g *Group) stored(r *Repository, fits func(*nip34.State) bool) (newest *nip34.State) {
	for _, s := range g.Stored {
		if r.IsMember(s.Ref.Owner) && fits(s) && (newest == nil || s.Key().Newer(newest.Key())) {
			newest = s
		}
	}
	return newest
}

// newest returns the newest held state of a member that fits, or newest if that is newer.
func (g *Group) newest(r *Repository, newest *nip34.State, fits func(*nip34.State) bool) *nip34.State {
	for _, h := range g.States {
		if r.IsMember(h.Author) && fits(h.State) && (newest == nil || h.Version.Newer(newest.Key())) {
			newest = h.State
		}
	}
	return newest
}

// Authorized returns the newest state of a member, stored or held, even if its objects are
// missing.
func (g *Group) Authorized(r *Repository) *nip34.State {
	return g.newest(r, g.NewestStored(r), r.isFit)
}

// Authoritative returns the state that decides about the refs: the newest one that is stored, or
// held and complete, or nil if a stored one is incomplete. A state without refs does not decide for
// a repository that is not served.
func (g *Group) Authoritative(r *Repository) *nip34.State {
	decides := func(s *nip34.State) bool { return r.IsComplete(s) && (len(s.Refs) > 0 || r.Active) }
	newest := g.newest(r, g.NewestStored(r), decides)
	if newest == nil || !decides(newest) {
		return nil
	}
	return newest
}

// Changes returns the ref changes of a repository, and its new HEAD or the zero name.
func (g *Group) Changes(r *Repository) (changes []RefChange, head nip34.RefName) {
	if r.Decides != nil {
		changes, head = ChangesFor(r.Refs, r.Decides)
		changes = slices.DeleteFunc(changes, func(c RefChange) bool { return g.PushedAhead(r, c.Name) })
		if _, exists := r.Refs.Apply(changes, head).At[head]; !exists {
			head = nip34.RefName{}
		}
	}
	for _, h := range g.Pulls {
		name := nip34.EventRef(h.ID)
		_, over := r.Refused[h.ID]
		_, merged := r.Merged[h.ID]
		if over || merged || r.Refused == nil {
			continue
		}
		if slices.Contains(h.Repos, r.Ref) && r.Has(h.Pull.Tip) && r.Refs.At[name] != h.Pull.Tip {
			changes = append(changes, RefChange{Name: name, Old: r.Refs.At[name], New: h.Pull.Tip})
		}
	}
	for _, c := range r.Evicted {
		if r.Refs.At[c.Name] == c.Old {
			changes = append(changes, c)
		}
	}
	return changes, head
}

// ChangesFor returns the changes that make the branches and tags equal to those of a state, by
// name.
func ChangesFor(now Refs, target *nip34.State) (changes []RefChange, head nip34.RefName) {
	for name, id := range target.Refs {
		if now.At[name] != id {
			changes = append(changes, RefChange{Name: name, Old: now.At[name], New: id})
		}
	}
	for name, id := range now.At {
		if _, stays := target.Refs[name]; !stays && IsState(name) {
			changes = append(changes, RefChange{Name: name, Old: id})
		}
	}
	slices.SortFunc(changes, func(a, b RefChange) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	if _, exists := target.Refs[target.HEAD]; exists && now.Head != target.HEAD {
		head = target.HEAD
	}
	return changes, head
}

// UnbornHead returns the default branch of the newest held state for a repository without branches,
// because a clone starts on it. It is zero if HEAD is already correct.
func (g *Group) UnbornHead(r *Repository) (head nip34.RefName) {
	if r.Decides != nil || r.Refs.HasState() {
		return head
	}
	newest := g.newest(r, nil, r.isFit)
	if newest == nil {
		return head
	}
	if _, exists := newest.Refs[newest.HEAD]; !exists || newest.HEAD == r.Refs.Head {
		return head
	}
	return newest.HEAD
}

// PushedAhead reports whether a push has moved a ref to its value in a held state that is newer than
// the deciding one. It must not be moved back.
func (g *Group) PushedAhead(r *Repository, name nip34.RefName) bool {
	if _, pushed := r.Pushed[name]; !pushed {
		return false
	}
	return slices.ContainsFunc(g.States, func(h Entry) bool {
		return r.IsMember(h.Author) && h.State.Refs[name] == r.Refs.At[name] && // or neither has it
			(r.Decides == nil || h.Version.Newer(r.Decides.Key()))
	})
}

// EndsRepository reports whether o is the announcement of a repository without another announcement.
func (g *Group) EndsRepository(o Ended) bool {
	return o.Entry.Class == Announcement && o.Reason != Replaced && !g.IsOurs(o.Entry.Repos[0])
}

// Need lists missing objects, and the URLs that may have them.
type Need struct {
	IDs    []nip34.ObjectID
	States []nip34.ObjectID // those of IDs that states name; sorted
	// Own are the clone URLs of members, Strangers the others in the pull requests of each author.
	// Several authors may name one URL.
	Own       []graspsync.CloneURL
	Strangers [][]graspsync.CloneURL
	Left      int                           // number of URLs over the limits
	Entries   []graspsync.EventID           // events that wait for the objects
	Authors   map[graspsync.PubKey]struct{} // members, and authors of Entries
}

// Clones are the limits of clone URLs.
type Clones struct {
	Most   int                             // number of used URLs per announcement or pull request
	IsOurs func(u graspsync.CloneURL) bool // URLs of this service, which are not used
	Now    time.Time                       // determines the rotation
}

// mostOwn and mostStrangers times Clones.Most are the maximum numbers of clone URLs.
const mostOwn = 4

const mostStrangers = 16

const rotates = time.Hour

// Need returns the objects that r lacks for held events and for the newest stored state.
func (g *Group) Need(r *Repository, clones Clones) (n Need) {
	n.Authors = make(map[graspsync.PubKey]struct{})
	maps.Copy(n.Authors, r.Members)
	for _, h := range g.States {
		if ids := r.Absent(h.State); r.IsMember(h.Author) && len(ids) > 0 {
			n.IDs = append(n.IDs, ids...)
			n.Entries = append(n.Entries, h.ID)
		}
	}
	if s := g.NewestStored(r); s != nil {
		ids := r.Absent(s)
		n.IDs = append(n.IDs, ids...)
		if e, held := g.Held[r.Ref]; held && len(ids) > 0 {
			n.Entries = append(n.Entries, e.ID)
		}
	}
	n.States = slices.SortedFunc(slices.Values(n.IDs), CompareIDs)
	for _, h := range g.Pulls {
		if slices.Contains(h.Repos, r.Ref) && h.Pull.Tip.Format() == r.Refs.Format && r.Misses(h.Pull.Tip) {
			n.IDs = append(n.IDs, h.Pull.Tip)
			n.Entries = append(n.Entries, h.ID)
			n.Authors[h.Author] = struct{}{}
		}
	}
	n.IDs = distinct(n.IDs)
	n.Own, n.Strangers, n.Left = g.urls(r, clones)
	return n
}

// urls returns the clone URLs of a repository, and the number of those over the limits. The owner and
// authors of held states come first. The order of the other members rotates each hour. Authors of pull
// requests take turns with one URL each, those of the newest first.
func (g *Group) urls(r *Repository, clones Clones) (own []graspsync.CloneURL, strangers [][]graspsync.CloneURL, left int) {
	used := make(map[graspsync.CloneURL]bool) // false: over the limit
	count := 0
	take := func(u graspsync.CloneURL, most int) bool {
		if _, again := used[u]; again || !u.HostPort().Resolvable() || clones.IsOurs(u) {
			return false
		}
		if used[u] = count < most*clones.Most; used[u] {
			count++
		} else {
			left++
		}
		return used[u]
	}
	for _, member := range g.inOrder(r, clones.Now) {
		if a := g.Family.Announcement(member); a != nil {
			for _, u := range a.Clones[:min(len(a.Clones), clones.Most)] {
				if take(u, mostOwn) {
					own = append(own, u)
				}
			}
		}
	}
	of, authors := g.pullURLs(r, clones)
	members := maps.Clone(used)
	count = 0
	for round, waiting := 0, authors; len(waiting) > 0; round++ {
		waiting = slices.DeleteFunc(slices.Clone(waiting), func(who graspsync.PubKey) bool { return round >= len(of[who]) })
		for _, who := range waiting {
			take(of[who][round], mostStrangers)
		}
	}
	for _, who := range authors {
		strangers = append(strangers, slices.DeleteFunc(of[who], func(u graspsync.CloneURL) bool {
			_, theirs := members[u]
			return theirs || !used[u]
		}))
	}
	return own, strangers, left
}

// pullURLs returns the clone URLs in the pull requests of each author, and the authors, the newest
// first.
func (g *Group) pullURLs(r *Repository, clones Clones) (of map[graspsync.PubKey][]graspsync.CloneURL, authors []graspsync.PubKey) {
	of = make(map[graspsync.PubKey][]graspsync.CloneURL)
	newest := func(a, b Entry) int { return b.Seen.Compare(a.Seen) }
	for _, h := range slices.SortedStableFunc(slices.Values(g.Pulls), newest) {
		if us := h.Pull.Clones; slices.Contains(h.Repos, r.Ref) && len(us) > 0 {
			if of[h.Author] == nil {
				authors = append(authors, h.Author)
			}
			of[h.Author] = append(of[h.Author], us[:min(len(us), clones.Most)]...)
		}
	}
	return of, authors
}

func (g *Group) inOrder(r *Repository, now time.Time) []graspsync.PubKey {
	members := slices.SortedFunc(maps.Keys(r.Members), graspsync.PubKey.Compare)
	first := int(now.Unix()/int64(rotates/time.Second)) % max(1, len(members))
	members = slices.Concat(members[first:], members[:first])
	rank := func(who graspsync.PubKey) int {
		switch {
		case who == r.Ref.Owner:
			return 0
		case slices.ContainsFunc(g.States, func(h Entry) bool { return h.Author == who }):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(members, func(a, b graspsync.PubKey) int { return rank(a) - rank(b) })
	return members
}

// Repository is the state of one repository during a release or survey.
type Repository struct {
	Ref     graspsync.RepoRef
	Members map[graspsync.PubKey]struct{}
	Refs    Refs
	Found   map[nip34.ObjectID]struct{}    // complete objects
	Missing map[nip34.ObjectID]struct{}    // needed objects that are missing or incomplete
	Kinds   map[nip34.ObjectID]Kind        // of existing objects
	Refused map[graspsync.EventID]struct{} // pull requests without room for a ref; nil before the decision
	// Merged are pull requests whose commit a branch or a tag contains.
	Merged map[graspsync.EventID]struct{}
	// Evicted are removals of refs that make room for others.
	Evicted []RefChange
	Pushed  map[nip34.RefName]struct{} // refs moved by pushes while a state was held
	Decides *nip34.State               // state that decides about the refs, or nil
	Active  bool                       // its announcement is accepted or about to be
}

// MissingOf returns the missing objects of sets.
func (r *Repository) MissingOf(sets []Objects) []nip34.ObjectID {
	return slices.DeleteFunc(IDsOf(sets), func(id nip34.ObjectID) bool { return !r.Misses(id) })
}

// IsComplete reports whether a state is complete and acceptable to git.
func (r *Repository) IsComplete(s *nip34.State) bool {
	ids, fits := ObjectsOf(s, r.Refs.Format)
	return fits && r.isFit(s) && !slices.ContainsFunc(ids, r.Lacks)
}

// Has reports whether an object is complete.
func (r *Repository) Has(id nip34.ObjectID) bool {
	_, found := r.Found[id]
	return found
}

// Lacks is the opposite of Has.
func (r *Repository) Lacks(id nip34.ObjectID) bool { return !r.Has(id) }

// Misses reports whether an object is known to be missing.
func (r *Repository) Misses(id nip34.ObjectID) bool {
	_, missing := r.Missing[id]
	return missing
}

// Absent returns the missing objects of a state that git would accept.
func (r *Repository) Absent(s *nip34.State) []nip34.ObjectID {
	ids, fits := ObjectsOf(s, r.Refs.Format)
	if !fits || r.IsUnfit(s) {
		return nil
	}
	return slices.DeleteFunc(ids, func(id nip34.ObjectID) bool { return !r.Misses(id) })
}

// IsMember reports whether a key is a member.
func (r *Repository) IsMember(author graspsync.PubKey) bool {
	_, member := r.Members[author]
	return member
}

// HasFormat reports whether a repository has the right object format, or cannot change it because it
// has refs.
func (r *Repository) HasFormat(g *Group) bool {
	format, known := g.FormatOf(r)
	return !known || r.Refs.Format == format || len(r.Refs.At) > 0
}

// Releases reports whether a held state can be stored: it is complete, the repository active, and
// its refs those of this or a newer state.
func (r *Repository) Releases(h Entry) bool {
	return r.Active && r.IsMember(h.Author) && r.IsComplete(h.State) &&
		r.Decides != nil && !h.Version.Newer(r.Decides.Key())
}

// Related reports whether two repositories have a common member.
func (r *Repository) Related(o *Repository) bool {
	for member := range r.Members {
		if o.IsMember(member) {
			return true
		}
	}
	return false
}

// Nonexistent returns the ids that do not exist.
func (r *Repository) Nonexistent(ids []nip34.ObjectID) []nip34.ObjectID {
	return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return r.Kinds[id] != 0 })
}

// IsUnfit reports whether git would refuse a state, because a branch names no commit or an id is
// abbreviated.
func (r *Repository) IsUnfit(s *nip34.State) bool {
	for name, id := range s.Refs {
		if kind := r.Kinds[id]; kind != 0 && kind != Commit && strings.HasPrefix(name.String(), "refs/heads/") {
			return true
		}
	}
	return s.Abbreviated
}

func (r *Repository) isFit(s *nip34.State) bool { return !r.IsUnfit(s) }
