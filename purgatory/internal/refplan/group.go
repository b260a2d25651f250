// Package refplan plans a release as pure values. Its input is a [Group], the events of all
// repositories with one identifier, and a [Repository] of the group. It decides which state counts,
// which refs change, which objects are missing, and which events may be served.
package refplan

import (
	"maps"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Group holds the known events of all repositories with one identifier.
//
//	        announcements            states        pull requests
//	stored  StoredAnnouncements      StoredStates  (only in the relay)
//	held    HeldAnnouncements,       HeldStates    HeldPulls
//	        MaintainerAnnouncements
type Group struct {
	Identifier              string
	Family                  *nip34.AnnouncementSet                    // members of each repository
	StoredAnnouncements     map[graspsync.RepoRef]*nip34.Announcement // those that list this service
	HeldAnnouncements       map[graspsync.RepoRef]Entry
	MaintainerAnnouncements []Entry
	StoredStates            []*nip34.State
	HeldStates              []Entry
	HeldPulls               []Entry
	Ending                  []Ended // events whose holds end
	Why                     Reasons // why the events were read
}

// Ours returns the repositories whose announcements are stored or held.
func (g *Group) Ours() map[graspsync.RepoRef]struct{} {
	refs := make(map[graspsync.RepoRef]struct{}, len(g.StoredAnnouncements)+len(g.HeldAnnouncements))
	for ref := range g.StoredAnnouncements {
		refs[ref] = struct{}{}
	}
	for ref := range g.HeldAnnouncements {
		refs[ref] = struct{}{}
	}
	return refs
}

// IsOurs reports whether Ours contains a repository.
func (g *Group) IsOurs(ref graspsync.RepoRef) bool {
	_, held := g.HeldAnnouncements[ref]
	return held || g.StoredAnnouncements[ref] != nil
}

// AddAnnouncement adds a held announcement, unless a newer version is stored.
func (g *Group) AddAnnouncement(e Entry) {
	a := e.Announces
	if served := g.StoredAnnouncements[a.Ref]; served != nil && served.Key().Newer(a.Key()) {
		g.Ending = append(g.Ending, Ended{e, Replaced})
		return
	}
	g.HeldAnnouncements[a.Ref] = e
}

// Repository returns a new Repository with its members.
func (g *Group) Repository(ref graspsync.RepoRef) *Repository {
	return &Repository{
		Ref: ref, Members: g.Family.Authority(ref).Members(), Active: g.StoredAnnouncements[ref] != nil,
		Found: make(map[nip34.ObjectID]struct{}), Missing: make(map[nip34.ObjectID]struct{}),
		Kinds: make(map[nip34.ObjectID]Kind),
	}
}

// Reasons are the reasons for a survey or release.
type Reasons struct {
	// Authors are authors of new events, whose data is fetched as if it were new. An announcement
	// may name new servers. The value is true for clients.
	Authors map[graspsync.PubKey]bool
	// Receivers are repositories that received objects which others may lack.
	Receivers map[graspsync.RepoRef]bool
	// Left are repositories that may have lost their announcement.
	Left map[graspsync.RepoRef]bool
	// Deleters are authors whose events may be deleted. The relay is asked about them.
	Deleters map[graspsync.PubKey]bool
	Check    bool // hourly check, which includes stored events
}

// AsksAbout reports whether the relay is asked about an author's events.
func (c Reasons) AsksAbout(author graspsync.PubKey) bool { return c.Check || c.Deleters[author] }

// Union returns the union.
func (c Reasons) Union(o Reasons) Reasons {
	return Reasons{
		Authors: joined(c.Authors, o.Authors), Receivers: joined(c.Receivers, o.Receivers), Left: joined(c.Left, o.Left),
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
// are the repositories that may lack data.
func (g *Group) Affected(lacking map[graspsync.RepoRef]struct{}, most int, shuffle func(n int, swap func(i, j int))) (refs []graspsync.RepoRef, cut bool) {
	gone := maps.Clone(g.Why.Left)
	if gone == nil {
		gone = make(map[graspsync.RepoRef]bool)
	}
	for _, o := range g.Ending {
		if g.EndsRepository(o) {
			gone[o.Entry.Repos[0]] = true
		}
	}
	var needed []*Repository
	for ref := range g.Ours() {
		delete(gone, ref)
		if r := g.Repository(ref); g.isAffected(r, lacking) {
			needed = append(needed, r)
		}
	}
	if cut = len(needed) > most; cut {
		shuffle(len(needed), func(i, j int) { needed[i], needed[j] = needed[j], needed[i] })
		slices.SortStableFunc(needed, func(a, b *Repository) int { return g.priority(b) - g.priority(a) })
		needed = needed[:most]
	}
	for _, r := range needed {
		refs = append(refs, r.Ref)
	}
	return slices.SortedFunc(slices.Values(slices.AppendSeq(refs, maps.Keys(gone))), graspsync.RepoRef.Compare), cut
}

// priority returns 1 if the owner has a held state, else 0.
func (g *Group) priority(r *Repository) int {
	if slices.ContainsFunc(g.HeldStates, func(h Entry) bool { return h.Repos[0] == r.Ref }) {
		return 1
	}
	return 0
}

func (g *Group) isAffected(r *Repository, lacking map[graspsync.RepoRef]struct{}) bool {
	if g.Why.Check || g.membershipMayChange(r.Ref) || g.stateMayBeDeleted(r) {
		return true
	}
	for author := range g.Why.Authors {
		if r.IsMember(author) {
			return true
		}
	}
	_, lacks := lacking[r.Ref]
	for ref := range g.Why.Receivers {
		if lacks && ref != r.Ref && r.IsRelated(g.Repository(ref)) {
			return true
		}
	}
	return false
}

// stateMayBeDeleted reports whether a state of a member without another stored state may be deleted.
func (g *Group) stateMayBeDeleted(r *Repository) bool {
	for author := range g.Why.Deleters {
		if r.IsMember(author) && !slices.ContainsFunc(g.StoredStates, func(s *nip34.State) bool { return s.Ref.Owner == author }) {
			return true
		}
	}
	return false
}

// membershipMayChange reports whether a new announcement may add or remove a member of a repository.
func (g *Group) membershipMayChange(ref graspsync.RepoRef) bool {
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
	for _, h := range slices.Backward(g.HeldStates) {
		if r.IsMember(h.Author) {
			add(h.State)
		}
	}
	return sets
}

// PullObjects returns the objects of pull requests.
func (g *Group) PullObjects(r *Repository) (sets []Objects) {
	for _, h := range g.HeldPulls {
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
		case r.IsRelated(g.Repository(ref)) || slices.ContainsFunc(g.HeldPulls, func(h Entry) bool { // a pull request is for both
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
	for _, s := range g.StoredStates {
		if r.IsMember(s.Ref.Owner) && fits(s) && (newest == nil || s.Key().Newer(newest.Key())) {
			newest = s
		}
	}
	return newest
}

// newest returns the newest held state of a member that fits, or newest if that is newer.
func (g *Group) newest(r *Repository, newest *nip34.State, fits func(*nip34.State) bool) *nip34.State {
	for _, h := range g.HeldStates {
		if r.IsMember(h.Author) && fits(h.State) && (newest == nil || h.Version.Newer(newest.Key())) {
			newest = h.State
		}
	}
	return newest
}

// NewestState returns the newest state of a member, stored or held, even if its objects are
// missing.
func (g *Group) NewestState(r *Repository) *nip34.State {
	return g.newest(r, g.NewestStored(r), r.isFit)
}

// DecidingState returns the state that decides about the refs: the newest one that is stored, or
// held and complete, or nil if a stored one is incomplete. A state without refs does not decide for
// a repository that is not served.
func (g *Group) DecidingState(r *Repository) *nip34.State {
	decides := func(s *nip34.State) bool { return r.IsComplete(s) && (len(s.Refs) > 0 || r.Active) }
	newest := g.newest(r, g.NewestStored(r), decides)
	if newest == nil || !decides(newest) {
		return nil
	}
	return newest
}

// Changes returns the ref changes of a repository, and its new HEAD or the zero name.
func (g *Group) Changes(r *Repository) (changes []RefChange, head nip34.RefName) {
	if r.DecidingState != nil {
		changes, head = ChangesFor(r.Refs, r.DecidingState)
		changes = slices.DeleteFunc(changes, func(c RefChange) bool { return g.PushedAhead(r, c.Name) })
		if _, exists := r.Refs.Apply(changes, head).At[head]; !exists {
			head = nip34.RefName{}
		}
	}
	for _, h := range g.HeldPulls {
		name := nip34.EventRef(h.ID)
		_, refused := r.Refused[h.ID]
		_, merged := r.Merged[h.ID]
		if refused || merged || r.Refused == nil {
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
	if r.DecidingState != nil || r.Refs.HasState() {
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
	return slices.ContainsFunc(g.HeldStates, func(h Entry) bool {
		return r.IsMember(h.Author) && h.State.Refs[name] == r.Refs.At[name] && // or neither has it
			(r.DecidingState == nil || h.Version.Newer(r.DecidingState.Key()))
	})
}

// EndsRepository reports whether o is the announcement of a repository without another announcement.
func (g *Group) EndsRepository(o Ended) bool {
	return o.Entry.Class == Announcement && o.Reason != Replaced && !g.IsOurs(o.Entry.Repos[0])
}
