package refplan

import (
	"iter"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Group is what is known of the repositories with one identifier, as far as it concerns
// those that are looked at: a state may concern several of them.
type Group struct {
	Identifier string
	Family     *nip34.Family // who has a say in them
	Accepted   map[graspsync.RepoRef]*nip34.Announcement
	Waiting    map[graspsync.RepoRef]Entry // announcements that wait
	All        []*nip34.Announcement       // the newest of each repository
	States     []Entry
	Pulls      []Entry
	PullsFor   map[graspsync.RepoRef]struct{} // in a survey: the repositories for which pull requests wait, in Pulls or not
	Relatives  []Entry                        // of those whom others list that wait
	Stored     []*nip34.State
	Over       []Ended             // what does not wait any more
	Pins       []graspsync.EventID // of entries that nobody else may end
	Late       bool                // what had to be released before a crash counts though its time is over
	AskDeleted       bool                // it is asked again of all whether it was deleted
}

// EndReason is how the waiting of an entry ended before its data was here.
type EndReason uint8

// The reasons for which a hold ends.
const (
	Expired   EndReason = iota + 1 // by the time that its event gives itself
	Replaced                       // by a newer version
	Deleted                        // by its author
	NotStored                      // the relay refused it
)

// Ended is an entry whose waiting has ended by what others did.
type Ended struct {
	Entry  Entry
	Reason EndReason
}

// Ours returns the repositories whose announcements are accepted, or wait.
func (g *Group) Ours() map[graspsync.RepoRef]struct{} {
	refs := make(map[graspsync.RepoRef]struct{}, len(g.Accepted)+len(g.Waiting))
	for ref := range g.Accepted {
		refs[ref] = struct{}{}
	}
	for ref := range g.Waiting {
		refs[ref] = struct{}{}
	}
	return refs
}

// IsOurs reports whether the announcement of a repository is accepted, or waits.
func (g *Group) IsOurs(ref graspsync.RepoRef) bool {
	_, waits := g.Waiting[ref]
	return waits || g.Accepted[ref] != nil
}

// SortAnnouncement adds an announcement that waits, unless a newer version is served.
func (g *Group) SortAnnouncement(e Entry) {
	a := e.Announces
	switch served := g.Accepted[a.Ref]; {
	case served == nil:
		g.All = append(g.All, a)
	case served.Stamp().Newer(a.Stamp()):
		g.Over = append(g.Over, Ended{e, Replaced})
		return
	}
	g.Waiting[a.Ref] = e
}

// Repository returns what a group says of a repository.
func (g *Group) Repository(ref graspsync.RepoRef) *Repository {
	return &Repository{
		Ref: ref, Members: g.Family.Authority(ref).Members(), Active: g.Accepted[ref] != nil,
		Found: make(map[nip34.ObjectID]struct{}), Missing: make(map[nip34.ObjectID]struct{}),
		Kinds: make(map[nip34.ObjectID]Kind),
	}
}

// WaitsFor reports whether a state or a pull request waits for a repository.
func (g *Group) WaitsFor(r *Repository) bool {
	_, pulled := g.PullsFor[r.Ref]
	return pulled || slices.ContainsFunc(g.States, func(h Entry) bool { return r.IsMember(h.Author) }) ||
		slices.ContainsFunc(g.Over, func(o Ended) bool {
			return o.Entry.Class == PullRequest && slices.Contains(o.Entry.Repos, r.Ref)
		})
}

// Wrote is 1 if the owner of a repository wrote a state that waits.
func (g *Group) Wrote(r *Repository) int {
	if slices.ContainsFunc(g.States, func(h Entry) bool { return h.Repos[0] == r.Ref }) {
		return 1
	}
	return 0
}

// Older orders versions, the oldest first.
func Older(a, b graspsync.Stamp) int {
	switch {
	case b.Newer(a):
		return -1
	case a.Newer(b):
		return 1
	}
	return 0
}

// FormatOf is the object format that a repository should have, by the newest state
// that names any object; false if there is none.
func (g *Group) FormatOf(r *Repository) (format nip34.ObjectFormat, known bool) {
	var newest *nip34.State
	consider := func(s *nip34.State) {
		if r.IsMember(s.Ref.Owner) && len(s.Refs) > 0 &&
			(newest == nil || s.Stamp().Newer(newest.Stamp())) {
			newest = s
		}
	}
	for _, s := range g.Stored {
		consider(s)
	}
	for _, s := range g.States {
		consider(s.State)
	}
	if newest != nil {
		for _, id := range newest.Refs {
			return id.Format(), true
		}
	}
	return nip34.SHA1, false
}

// Sources returns the repositories that may have what one lacks: those of its own
// maintainers first, then those that somebody has a say in who has one in this, and those
// that a pull request is for as well.
func (g *Group) Sources(r *Repository, most int, shuffle func([]graspsync.RepoRef)) (out []graspsync.RepoRef) {
	var others []graspsync.RepoRef
	for ref := range g.Ours() {
		switch {
		case ref == r.Ref:
		case r.IsMember(ref.Owner):
			out = append(out, ref)
		case r.Related(g.Repository(ref)) || g.PulledWith(r.Ref, ref):
			others = append(others, ref)
		}
	}
	shuffle(out)
	shuffle(others)
	out = append(out, others...)
	return out[:min(len(out), most)]
}

// PulledWith reports whether a pull request that waits is for both repositories.
func (g *Group) PulledWith(a, b graspsync.RepoRef) bool {
	return slices.ContainsFunc(g.Pulls, func(h Entry) bool {
		return slices.Contains(h.Repos, a) && slices.Contains(h.Repos, b)
	})
}

// Concerning returns the states that a repository is concerned with: those that
// wait, and the newest one that is stored.
func (g *Group) Concerning(r *Repository) (out []*nip34.State) {
	for _, h := range g.States {
		if r.IsMember(h.Author) {
			out = append(out, h.State)
		}
	}
	if s := g.NewestStored(r); s != nil {
		out = append(out, s)
	}
	return out
}

// NewestStored returns the newest state that is stored of those who have a say in a
// repository; nil if there is none.
func (g *Group) NewestStored(r *Repository) (newest *nip34.State) {
	for _, s := range g.Stored {
		if r.IsMember(s.Ref.Owner) && (newest == nil || s.Stamp().Newer(newest.Stamp())) {
			newest = s
		}
	}
	return newest
}

// Authorized returns the newest state, stored or waiting, that decides about the refs of a
// repository whether or not its objects are here; nil if there is none.
func (g *Group) Authorized(r *Repository) *nip34.State {
	newest := g.NewestStored(r)
	for _, h := range g.States {
		if !r.IsUnfit(h.State) && r.IsMember(h.Author) && (newest == nil || h.Version.Newer(newest.Stamp())) {
			newest = h.State
		}
	}
	return newest
}

// Authoritative returns the state that decides about the refs of a repository: the
// newest one that is stored, or that waits and whose objects are here. Nil if there
// is none, or if its objects are not here. One without refs says nothing about a
// repository that is not served yet.
func (g *Group) Authoritative(r *Repository) *nip34.State {
	newest := g.NewestStored(r)
	for _, h := range g.States {
		if !r.IsMember(h.Author) || !r.Here(h.State) || (len(h.State.Refs) == 0 && !r.Active) {
			continue
		}
		if newest == nil || h.Version.Newer(newest.Stamp()) {
			newest = h.State
		}
	}
	if newest == nil || !r.Here(newest) || (len(newest.Refs) == 0 && !r.Active) {
		return nil
	}
	return newest
}

// Changes returns what becomes of the refs of a repository.
func (g *Group) Changes(r *Repository) (changes []RefChange, head nip34.RefName) {
	if r.Decides != nil {
		changes, head = ChangesFor(r.Refs, r.Decides)
		changes = slices.DeleteFunc(changes, func(c RefChange) bool { return g.Ahead(r, c.Name) })
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

// Unborn returns the default branch of a repository without any, if that is another one than
// it has: that of the newest state which waits, so that who clones it begins on the right one.
func (g *Group) Unborn(r *Repository) (head nip34.RefName) {
	if r.Decides != nil || r.Refs.HasState() {
		return head
	}
	var newest *nip34.State
	for _, h := range g.States {
		if r.IsMember(h.Author) && !r.IsUnfit(h.State) && (newest == nil || h.Version.Newer(newest.Stamp())) {
			newest = h.State
		}
	}
	if newest == nil {
		return head
	}
	if _, exists := newest.Refs[newest.HEAD]; !exists || newest.HEAD == r.Refs.Head {
		return head
	}
	return newest.HEAD
}

// Ahead reports whether a push has made a ref what a state says that is newer than the
// one that decides, and that waits for the rest of its data: it must not be moved back.
func (g *Group) Ahead(r *Repository, name nip34.RefName) bool {
	if _, pushed := r.Pushed[name]; !pushed {
		return false
	}
	return slices.ContainsFunc(g.States, func(h Entry) bool {
		return r.IsMember(h.Author) && h.State.Refs[name] == r.Refs.At[name] && // or neither has it
			(r.Decides == nil || h.Version.Newer(r.Decides.Stamp()))
	})
}

// Ends reports whether what is over is the announcement of a repository that nobody announces
// any more, and that goes with it.
func (g *Group) Ends(o Ended) bool {
	return o.Entry.Class == Announcement && o.Reason != Replaced && !g.IsOurs(o.Entry.Repos[0])
}

// Decided is what belongs together of the objects that states say a repository has: what
// the newest stored one names, then what each one that waits does, the newest first.
func (g *Group) Decided(r *Repository) (sets []Objects) {
	states := g.Concerning(r)
	slices.Reverse(states)
	for _, s := range states {
		if ids, fits := ObjectsOf(s, r.Refs.Format); fits {
			sets = append(sets, Objects{IDs: ids, State: s})
		}
	}
	return sets
}

// Named yields the objects of both, in any order, some more than once.
func (g *Group) Named(r *Repository) iter.Seq[nip34.ObjectID] {
	return func(yield func(nip34.ObjectID) bool) {
		for _, set := range g.Decided(r) {
			for _, id := range set.IDs {
				if !yield(id) {
					return
				}
			}
		}
		for i := range g.Pulls {
			if h := &g.Pulls[i]; h.Pull.Tip.Format() == r.Refs.Format && slices.Contains(h.Repos, r.Ref) && !yield(h.Pull.Tip) {
				return
			}
		}
	}
}

// Pulled is the same for pull requests.
func (g *Group) Pulled(r *Repository) (sets []Objects) {
	for _, h := range g.Pulls {
		if slices.Contains(h.Repos, r.Ref) && h.Pull.Tip.Format() == r.Refs.Format {
			sets = append(sets, Objects{IDs: []nip34.ObjectID{h.Pull.Tip}})
		}
	}
	return sets
}
