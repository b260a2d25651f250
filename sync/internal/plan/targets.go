package plan

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// targets turns what is wanted into what is wanted of each relay, and knows the relays that
// this takes.
type targets struct {
	*common
	want        *want
	known       *known
	owners      *owners
	dialer      *dialer
	byID        *byID
	checkpoint  *checkpoint
	descendants *descendants

	refused bool // a relay that is wanted is not known since there were too many
}

// known are the relays that are known.
type known struct {
	lots      *rand.Rand // puts strangers in order, who must not know which
	relays    map[graspsync.RelayURL]*relay
	ordered   []*relay // by name
	unordered bool     // relays have come or gone since
}

// inOrder returns the relays, ordered by name.
func (k *known) inOrder() []*relay {
	if k.unordered {
		k.ordered = slices.SortedFunc(maps.Values(k.relays), byName)
		k.unordered = false
	}
	return k.ordered
}

// change applies what a batch window brought: repositories first, since the others
// mean nothing without them.
func (t *targets) change(in Changes) {
	for _, c := range in.Repos {
		t.setRepo(c)
	}
	for _, c := range in.Roots {
		t.setRoot(c)
	}
	for _, c := range in.Descendants {
		t.setDescendant(c)
	}
}

// replace makes in all there is to want.
func (t *targets) replace(in Snapshot) {
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
	t.change(Changes(in))
	for _, of := range sortedBy(without(t.want.descendants, descendants), filters.Descendant.Compare) {
		t.setDescendant(DescendantChange{Of: of})
	}
	gone := without(t.want.roots, roots)
	for r := range t.want.resting {
		maps.Copy(gone, without(r.rest, roots))
	}
	for _, id := range sortedBy(gone, graspsync.EventID.Compare) {
		t.setRoot(RootChange{ID: id})
	}
	for _, ref := range sortedBy(without(t.want.repos, repos), graspsync.RepoRef.Compare) {
		t.setRepo(RepoChange{Ref: ref})
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
func (t *targets) setRepo(c RepoChange) {
	if c.Level == LevelNone {
		c.Relays, c.Others = nil, nil
	}
	r := t.want.repoOf(c.Ref)
	before, level := r.relays, r.level
	served := func() { t.setServed(r, c.Level == LevelFull && len(c.Relays)+len(c.Others) > 0) }
	served()
	t.list(r, c)
	served() // it may have been without any for a moment
	r.level = c.Level
	after := r.relays
	before = slices.DeleteFunc(slices.Clone(before), func(rel *relay) bool { return rel.gone })
	for _, rel := range after {
		if !slices.Contains(before, rel) {
			if r.states != 0 { // whatever the level
				rel.add(r.states, itemStates)
				t.markDirty(rel)
			}
		}
		if r.level == LevelFull && (level != LevelFull || !slices.Contains(before, rel)) {
			t.follows(r, rel)
		}
	}
	for _, rel := range before {
		gone := !slices.Contains(after, rel)
		if gone {
			if r.states != 0 {
				rel.remove(r.states, itemStates)
			}
			t.markDirty(rel)
		}
		if level == LevelFull && (gone || r.level != LevelFull) {
			t.unfollows(r, rel)
		}
	}
	t.unlisted(r)
	t.want.drop(r)
}

// list makes the relays of a repository those that c says, as far as there is room.
func (t *targets) list(r *repo, c RepoChange) {
	after := make([]*relay, 0, len(c.Relays)+len(c.Others))
	for i, u := range slices.Concat(c.Relays, c.Others) {
		by := byOwner
		if i >= len(c.Relays) {
			by = byOthers
		}
		rel := t.relayOf(u, r.ref.Owner, by) // which may have another one forgotten, one of these as well
		if rel == nil || slices.Contains(after, rel) {
			continue
		}
		after = append(after, rel)
		listed := slices.Contains(r.relays, rel)
		if listed && r.names(rel) == by {
			continue
		}
		t.lists(r, rel, by)
		if listed {
			t.leaves(r, rel)
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
			t.leaves(r, rel)
		}
	}
	r.relays = slices.DeleteFunc(after, func(rel *relay) bool { return rel.gone })
}

// leaves notes that a repository does not list a relay any more.
func (t *targets) leaves(r *repo, rel *relay) {
	from := r.names(rel)
	if from == byOwner {
		r.named--
	}
	r.relays = slices.DeleteFunc(slices.Clone(r.relays), func(o *relay) bool { return o == rel })
	t.unlists(r, rel, from)
}

// follows makes a repository, its root events and what descends from it targets of a relay.
func (t *targets) follows(r *repo, rel *relay) {
	rel.add(r.item, itemRepo)
	for it := range r.roots {
		rel.add(it, itemRoot)
	}
	for _, it := range slices.SortedFunc(maps.Keys(r.descendants), t.want.compare) {
		t.descendants.add(rel, it)
	}
	t.markDirty(rel)
}

// unfollows undoes follows, but for what another repository wants.
func (t *targets) unfollows(r *repo, rel *relay) {
	rel.remove(r.item, itemRepo)
	for it := range r.roots {
		if !t.want.isTarget(it, rel) {
			rel.remove(it, itemRoot)
		}
	}
	for it := range r.descendants {
		if !t.want.isTarget(it, rel) {
			t.descendants.remove(rel, it)
		}
	}
	t.markDirty(rel)
}

// setRoot sets the repositories of a root event. An event never loses one of its
// tags, so they only grow until it is gone. They are kept for repositories that
// are not wanted (any more), which may be wanted again.
func (t *targets) setRoot(c RootChange) {
	if len(c.Repos) == 0 {
		t.dropRoot(c.ID)
		return
	}
	for _, ref := range c.Repos {
		if r, known := t.want.repos[ref]; known {
			t.addRoot(c, r)
		}
	}
}

func (t *targets) dropRoot(id graspsync.EventID) {
	t.dropRest(id)
	it, repos := t.want.dropRoot(id)
	if repos == nil {
		return
	}
	for _, r := range repos {
		for _, rel := range r.relays {
			rel.remove(it, itemRoot)
			t.markDirty(rel)
		}
	}
	t.want.release(it)
	for _, r := range repos {
		t.refill(r)
		t.want.drop(r)
	}
}

// mostLeftOut keeps the chance of a new author from becoming too small, as a multiple of
// how many are asked about.
const mostLeftOut = 4

// draw has an author for whom there is no room take the place of another one, by chance:
// the sooner, the fewer have been left out so far. Who came first would keep all others
// out for ever, which takes no more than keys.
func (dl *deletions) draw(a graspsync.PubKey) {
	most := len(dl.authors)
	dl.leftOut = min(dl.leftOut+1, mostLeftOut*most)
	if i := dl.rng.IntN(most + dl.leftOut); i < most {
		delete(dl.authorSet, dl.authors[i])
		dl.authors[i] = a
		dl.authorSet[a] = struct{}{}
	}
}

func (dl *deletions) add(in Authors) {
	dropped := 0
	for _, a := range in {
		if _, ok := dl.authorSet[a]; ok {
			continue
		}
		if len(dl.authors) >= dl.cfg.MaxAuthors {
			dropped++
			dl.draw(a)
			continue
		}
		dl.authorSet[a] = struct{}{}
		dl.authors = append(dl.authors, a)
	}
	if dropped > 0 {
		dl.emit(Dropped{Reason: "authors", Count: dropped})
	}
}
