package plan

import (
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// change applies what a batch window brought: repositories first, since the others
// mean nothing without them.
func (p *Plan) change(in Changes) {
	for _, c := range in.Repos {
		p.setRepo(c)
	}
	for _, c := range in.Roots {
		p.setRoot(c)
	}
	for _, c := range in.Descendants {
		p.setDescendant(c)
	}
}

// replace makes in all there is to want.
func (p *Plan) replace(in Snapshot) {
	repos := make(map[graspsync.RepoRef]struct{}, len(in.Repos))
	for _, c := range in.Repos {
		repos[c.Ref] = struct{}{}
	}
	roots := make(map[graspsync.EventID]struct{}, len(in.Roots))
	for _, c := range in.Roots {
		roots[c.ID] = struct{}{}
	}
	descendants := make(map[filters.Descendant]struct{}, len(in.Descendants))
	for _, c := range in.Descendants {
		descendants[c.Of] = struct{}{}
	}
	p.change(Changes(in))
	for _, of := range sortedBy(without(p.want.descendants, descendants), filters.Descendant.Compare) {
		p.setDescendant(DescendantChange{Of: of})
	}
	gone := without(p.want.roots, roots)
	for r := range p.want.resting {
		maps.Copy(gone, without(r.rest, roots))
	}
	for _, id := range sortedBy(gone, graspsync.EventID.Compare) {
		p.setRoot(RootChange{ID: id})
	}
	for _, ref := range sortedBy(without(p.want.repos, repos), graspsync.RepoRef.Compare) {
		p.setRepo(RepoChange{Ref: ref})
	}
}

// without returns the keys of m that are not in named.
func without[K comparable, V any](m map[K]V, named map[K]struct{}) map[K]struct{} {
	out := make(map[K]struct{})
	for k := range m {
		if _, ok := named[k]; !ok {
			out[k] = struct{}{}
		}
	}
	return out
}

// sortedBy returns the keys of m in order: what is done for each of them must not
// depend on the order of a map.
func sortedBy[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}

// setRepo makes the want of one repository what c says, and changes the targets
// of just the relays that it concerns.
func (p *Plan) setRepo(c RepoChange) {
	if c.Level == LevelNone {
		c.Relays, c.Others = nil, nil
	}
	r := p.want.repoOf(c.Ref)
	before, level := r.relays, r.level
	served := func() { p.setServed(r, c.Level == LevelFull && len(c.Relays)+len(c.Others) > 0) }
	served()
	p.list(r, c)
	served() // it may have been without any for a moment
	r.level = c.Level
	after := r.relays
	before = slices.DeleteFunc(slices.Clone(before), func(rel *relay) bool { return rel.gone })
	for _, rel := range after {
		if !slices.Contains(before, rel) {
			if r.states != 0 { // whatever the level
				rel.add(r.states, itemStates)
				p.touch(rel)
			}
		}
		if r.level == LevelFull && (level != LevelFull || !slices.Contains(before, rel)) {
			p.follows(r, rel)
		}
	}
	for _, rel := range before {
		gone := !slices.Contains(after, rel)
		if gone {
			if r.states != 0 {
				rel.remove(r.states, itemStates)
			}
			p.touch(rel)
		}
		if level == LevelFull && (gone || r.level != LevelFull) {
			p.unfollows(r, rel)
		}
	}
	p.unlisted(r)
	p.want.drop(r)
}

// list makes the relays of a repository those that c says, as far as there is room.
func (p *Plan) list(r *repo, c RepoChange) {
	after := make([]*relay, 0, len(c.Relays)+len(c.Others))
	for i, u := range slices.Concat(c.Relays, c.Others) {
		by := byOwner
		if i >= len(c.Relays) {
			by = byOthers
		}
		rel := p.relayOf(u, r.ref.Owner, by) // which may have another one forgotten, one of these as well
		if rel == nil || slices.Contains(after, rel) {
			continue
		}
		after = append(after, rel)
		listed := slices.Contains(r.relays, rel)
		if listed && r.names(rel) == by {
			continue
		}
		p.lists(r, rel, by)
		if listed {
			p.leaves(r, rel)
		}
		at := len(r.relays)
		if by == byOwner {
			at = r.named
			r.named++
		}
		r.relays = slices.Insert(slices.Clone(r.relays), at, rel)
	}
	for _, rel := range r.relays {
		if !slices.Contains(after, rel) {
			p.leaves(r, rel)
		}
	}
	r.relays = slices.DeleteFunc(after, func(rel *relay) bool { return rel.gone })
}

// leaves notes that a repository does not list a relay any more.
func (p *Plan) leaves(r *repo, rel *relay) {
	from := r.names(rel)
	if from == byOwner {
		r.named--
	}
	r.relays = slices.DeleteFunc(slices.Clone(r.relays), func(o *relay) bool { return o == rel })
	p.unlists(r, rel, from)
}

// follows makes a repository, its root events and what descends from it targets of a relay.
func (p *Plan) follows(r *repo, rel *relay) {
	rel.add(r.item, itemRepo)
	for it := range r.roots {
		rel.add(it, itemRoot)
	}
	for _, it := range slices.SortedFunc(maps.Keys(r.descendants), p.compare) {
		p.addDescendant(rel, it)
	}
	p.touch(rel)
}

// unfollows undoes follows, but for what another repository wants.
func (p *Plan) unfollows(r *repo, rel *relay) {
	rel.remove(r.item, itemRepo)
	for it := range r.roots {
		if !p.want.isTarget(it, rel) {
			rel.remove(it, itemRoot)
		}
	}
	for it := range r.descendants {
		if !p.want.isTarget(it, rel) {
			p.removeDescendant(rel, it)
		}
	}
	p.touch(rel)
}

// setRoot sets the repositories of a root event. An event never loses one of its
// tags, so they only grow until it is gone. They are kept for repositories that
// are not wanted (any more), which may be wanted again.
func (p *Plan) setRoot(c RootChange) {
	if len(c.Repos) == 0 {
		p.dropRoot(c.ID)
		return
	}
	for _, ref := range c.Repos {
		if r, known := p.want.repos[ref]; known {
			p.addRoot(c, r)
		}
	}
}

func (p *Plan) dropRoot(id graspsync.EventID) {
	p.dropRest(id)
	it, repos := p.want.dropRoot(id)
	if repos == nil {
		return
	}
	for _, r := range repos {
		for _, rel := range r.relays {
			rel.remove(it, itemRoot)
			p.touch(rel)
		}
	}
	p.want.release(it)
	for _, r := range repos {
		p.refill(r)
		p.want.drop(r)
	}
}

// mostLeftOut keeps the chance of a new author from becoming too small, as a multiple of
// how many are asked about.
const mostLeftOut = 4

// draw has an author for whom there is no room take the place of another one, by chance:
// the sooner, the fewer have been left out so far. Who came first would keep all others
// out for ever, which takes no more than keys.
func (p *Plan) draw(a graspsync.PubKey) {
	most := len(p.authors)
	p.leftOut = min(p.leftOut+1, mostLeftOut*most)
	if i := p.rng.IntN(most + p.leftOut); i < most {
		delete(p.authorSet, p.authors[i])
		p.authors[i] = a
		p.authorSet[a] = struct{}{}
	}
}

func (p *Plan) addAuthors(in Authors) {
	dropped := 0
	for _, a := range in {
		if _, ok := p.authorSet[a]; ok {
			continue
		}
		if len(p.authors) >= p.cfg.MaxAuthors {
			dropped++
			p.draw(a)
			continue
		}
		p.authorSet[a] = struct{}{}
		p.authors = append(p.authors, a)
	}
	for _, r := range sortedBy(p.connected, byName) {
		p.touch(r)
	}
	if dropped > 0 {
		p.emit(Dropped{Reason: "authors", Count: dropped})
	}
}
