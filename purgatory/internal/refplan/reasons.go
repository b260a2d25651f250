package refplan

import (
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

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
		if g.Ends(o) {
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
