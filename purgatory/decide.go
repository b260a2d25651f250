package purgatory

import (
	"slices"

	"github.com/graspsync/graspsync/nip34"
)

// concerning returns the states that a repository is concerned with: those that
// wait, and the newest one that is stored.
func (g *group) concerning(r *repository) (out []*nip34.State) {
	for _, h := range g.states {
		if r.isMember(h.state.Ref.Owner) {
			out = append(out, h.state)
		}
	}
	if s := g.newestStored(r); s != nil {
		out = append(out, s)
	}
	return out
}

func (g *group) newestStored(r *repository) (newest *nip34.State) {
	for _, s := range g.stored {
		if r.isMember(s.Ref.Owner) && (newest == nil || s.Stamp().Newer(newest.Stamp())) {
			newest = s
		}
	}
	return newest
}

// here reports whether every object that a state names is in the repository, and can be
// what it says.
func (r *repository) here(s *nip34.State) bool {
	ids, fits := objectsOf(s, r.refs.Format)
	return fits && !r.isUnfit(s) && !slices.ContainsFunc(ids, r.lacks)
}

// has reports whether an object is known to be here with all that it needs; lacks,
// whether it is not known to be; misses, whether it is known not to be.
func (r *repository) has(id nip34.ObjectID) bool {
	_, found := r.found[id]
	return found
}

func (r *repository) lacks(id nip34.ObjectID) bool { return !r.has(id) }

func (r *repository) misses(id nip34.ObjectID) bool {
	_, missing := r.missing[id]
	return missing
}

// authoritative returns the state that decides about the refs of a repository: the
// newest one that is stored, or that waits and whose objects are here. Nil if there
// is none, or if its objects are not here. One without refs says nothing about a
// repository that is not served yet.
func (g *group) authoritative(r *repository) *nip34.State {
	newest := g.newestStored(r)
	for _, h := range g.states {
		if !r.isMember(h.state.Ref.Owner) || !r.here(h.state) || (len(h.state.Refs) == 0 && !r.active) {
			continue
		}
		if newest == nil || h.state.Stamp().Newer(newest.Stamp()) {
			newest = h.state
		}
	}
	if newest == nil || !r.here(newest) || (len(newest.Refs) == 0 && !r.active) {
		return nil
	}
	return newest
}

// changes returns what becomes of the refs of a repository.
func (g *group) changes(r *repository) (changes []RefChange, head nip34.RefName) {
	if r.decides != nil {
		changes, head = changesFor(r.refs, r.decides)
		changes = slices.DeleteFunc(changes, func(c RefChange) bool { return g.ahead(r, c.Name) })
		if _, exists := r.refs.apply(changes, head).At[head]; !exists {
			head = nip34.RefName{}
		}
	}
	for _, h := range g.pulls {
		name := nip34.EventRef(h.entry.ID)
		if _, over := r.over[h.entry.ID]; over || r.over == nil {
			continue
		}
		if slices.Contains(h.pull.Repos, r.ref) && r.has(h.pull.Tip) && r.refs.At[name] != h.pull.Tip {
			changes = append(changes, RefChange{Name: name, Old: r.refs.At[name], New: h.pull.Tip})
		}
	}
	for _, c := range r.displaced {
		if r.refs.At[c.Name] == c.Old {
			changes = append(changes, c)
		}
	}
	return changes, head
}

// unborn returns the default branch of a repository without any, if that is another one than
// it has: that of the newest state which waits, so that who clones it begins on the right one.
func (g *group) unborn(r *repository) (head nip34.RefName) {
	if r.decides != nil || r.refs.hasState() {
		return head
	}
	var newest *nip34.State
	for _, h := range g.states {
		if r.isMember(h.state.Ref.Owner) && !r.isUnfit(h.state) && (newest == nil || h.state.Stamp().Newer(newest.Stamp())) {
			newest = h.state
		}
	}
	if newest == nil {
		return head
	}
	if _, exists := newest.Refs[newest.HEAD]; !exists || newest.HEAD == r.refs.Head {
		return head
	}
	return newest.HEAD
}

// ahead reports whether a push has made a ref what a state says that is newer than the
// one that decides, and that waits for the rest of its data: it must not be moved back.
func (g *group) ahead(r *repository, name nip34.RefName) bool {
	if _, pushed := r.pushed[name]; !pushed {
		return false
	}
	return slices.ContainsFunc(g.states, func(h heldState) bool {
		return r.isMember(h.state.Ref.Owner) && h.state.Refs[name] == r.refs.At[name] && // or neither has it
			(r.decides == nil || h.state.Stamp().Newer(r.decides.Stamp()))
	})
}

// lacking returns what a repository lacks for what waits, and for the newest state
// that is stored.
func (p *Purgatory) lacking(g *group, r *repository) need {
	n := need{members: r.members}
	for _, h := range g.states {
		if ids := r.absent(h.state); r.isMember(h.state.Ref.Owner) && len(ids) > 0 {
			n.ids = append(n.ids, ids...)
			n.entries = append(n.entries, h.entry.ID)
		}
	}
	if s := g.newestStored(r); s != nil {
		ids := r.absent(s)
		n.ids = append(n.ids, ids...)
		if e, waits := g.waiting[r.ref]; waits && len(ids) > 0 {
			n.entries = append(n.entries, e.ID)
		}
	}
	n.states = slices.SortedFunc(slices.Values(n.ids), compareIDs)
	for _, h := range g.pulls {
		if slices.Contains(h.pull.Repos, r.ref) && h.pull.Tip.Format() == r.refs.Format && r.misses(h.pull.Tip) {
			n.ids = append(n.ids, h.pull.Tip)
			n.named(h.pull)
			n.entries = append(n.entries, h.entry.ID)
		}
	}
	slices.SortFunc(n.ids, compareIDs)
	n.ids = slices.Compact(n.ids)
	n.own, n.strangers = p.urls(g, r)
	return n
}

// absent returns the objects of a state that a repository lacks; none if it could not
// have them.
func (r *repository) absent(s *nip34.State) []nip34.ObjectID {
	ids, fits := objectsOf(s, r.refs.Format)
	if !fits || r.isUnfit(s) {
		return nil
	}
	return slices.DeleteFunc(ids, func(id nip34.ObjectID) bool { return !r.misses(id) })
}
