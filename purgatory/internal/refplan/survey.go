package refplan

import (
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Reasons are why the repositories with an identifier are looked at. Those that they say
// nothing about are left alone.
type Reasons struct {
	// Fresh are the entries whose data is to be hunted for anew, and whether a user
	// submitted them.
	Fresh map[graspsync.EventID]bool
	// Owners are whose announcements came, and whether a user submitted them: servers
	// may be named that were not before.
	Owners map[graspsync.PubKey]bool
	// Gained are repositories that have got objects: others may lack these.
	Gained map[graspsync.RepoRef]bool
	// Left are repositories that may not be announced any more.
	Left map[graspsync.RepoRef]bool
	// Unsaid are those of whom a state may be gone: where it has decided, another one may now.
	Unsaid map[graspsync.PubKey]bool
	Check  bool // what is stored is looked at as well: it is the hourly check
	Late   bool // what had to be released before a crash is, even if its time is over
}

// And are these and others.
func (c Reasons) And(o Reasons) Reasons {
	return Reasons{
		Fresh: joined(c.Fresh, o.Fresh), Owners: joined(c.Owners, o.Owners), Gained: joined(c.Gained, o.Gained), Left: joined(c.Left, o.Left),
		Unsaid: joined(c.Unsaid, o.Unsaid), Check: c.Check || o.Check, Late: c.Late || o.Late,
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

// Survey is what is known when it is decided which repositories with an identifier are to be
// looked at.
type Survey struct {
	*Group
	Why     Reasons
	Touched map[graspsync.RepoRef]uint64   // by their numbers
	Lacking map[graspsync.RepoRef]bool     // that data is hunted for
	Stale   map[graspsync.RepoRef]bool     // of these, for events that do not wait any more
	Releasing   map[graspsync.RepoRef]struct{} // that are looked at, so that it is not known what they lack
}

// AffectedRepos is what a survey has found.
type AffectedRepos struct {
	Release []graspsync.RepoRef // that are to be looked at
	Complete     []graspsync.RepoRef // that lack nothing any more, since nobody says that they should have it
	// Untouched are those that need no look for what they were touched for.
	Untouched map[graspsync.RepoRef]uint64
	Cut       bool // there are more that would be to be looked at
}

// Overview says which repositories are to be looked at: so many at most, those first whose
// owners wrote a state that waits, and of the others any, as shuffle has it; and all that
// nobody announces any more.
func (v *Survey) Overview(most int, shuffle func(n int, swap func(i, j int))) (out AffectedRepos) {
	gone := make(map[graspsync.RepoRef]bool) // nobody announces them any more
	for _, o := range v.Over {
		if v.Ends(o) {
			gone[o.Entry.Repos[0]] = true
		}
	}
	for ref := range v.Why.Left {
		gone[ref] = true
	}
	var needed []*Repository
	for ref := range v.Ours() {
		delete(gone, ref)
		switch r := v.Repository(ref); {
		case v.concerns(r):
			needed = append(needed, r)
		case v.Lacking[ref] && !v.serves(r):
			out.Complete = append(out.Complete, ref)
		}
	}
	if out.Cut = len(needed) > most; out.Cut {
		shuffle(len(needed), func(i, j int) { needed[i], needed[j] = needed[j], needed[i] })
		slices.SortStableFunc(needed, func(a, b *Repository) int { return v.Wrote(b) - v.Wrote(a) })
		needed = needed[:most]
	}
	for _, r := range needed {
		out.Release = append(out.Release, r.Ref)
	}
	out.Release = slices.AppendSeq(out.Release, maps.Keys(gone))
	slices.SortFunc(out.Release, graspsync.RepoRef.Compare)
	for ref := range v.Lacking {
		if !v.IsOurs(ref) && !gone[ref] {
			out.Complete = append(out.Complete, ref)
		}
	}
	out.Untouched = maps.Clone(v.Touched)
	maps.DeleteFunc(out.Untouched, func(ref graspsync.RepoRef, _ uint64) bool {
		return out.Cut || slices.Contains(out.Release, ref)
	})
	return out
}

// concerns reports whether something is to be done about a repository that what we were
// told is about: something waits for it, it lacks something, or it was touched. The others
// cost nothing, however many there are.
func (v *Survey) concerns(r *Repository) bool {
	if v.Why.Check {
		return true
	}
	_, touched := v.Touched[r.Ref]
	_, looks := v.Releasing[r.Ref]
	touched = touched || looks || v.Lacking[r.Ref] || v.answered(r.Ref) || v.unsaid(r)
	_, waits := v.Waiting[r.Ref]
	return v.affects(r) && (v.WaitsFor(r) || touched && (waits || v.NewestStored(r) != nil))
}

// serves reports whether anything says what a repository should have.
func (v *Survey) serves(r *Repository) bool {
	_, waits := v.Waiting[r.Ref]
	return waits || v.WaitsFor(r) || v.NewestStored(r) != nil
}

// affects reports whether what we were told is about a repository.
func (v *Survey) affects(r *Repository) bool {
	if _, touched := v.Touched[r.Ref]; touched || v.Stale[r.Ref] || v.answered(r.Ref) || v.unsaid(r) {
		return true
	}
	for member := range r.Members {
		if _, told := v.Why.Owners[member]; told {
			return true
		}
	}
	for ref := range v.Why.Gained {
		_, looks := v.Releasing[r.Ref]
		if ref != r.Ref && (looks || v.Lacking[r.Ref]) && (r.Related(v.Repository(ref)) || v.PulledWith(r.Ref, ref)) {
			return true
		}
	}
	return slices.ContainsFunc(v.States, func(h Entry) bool {
		_, fresh := v.Why.Fresh[h.ID]
		return fresh && r.IsMember(h.Author)
	}) || slices.ContainsFunc(v.Pulls, func(h Entry) bool {
		_, fresh := v.Why.Fresh[h.ID]
		return fresh && slices.Contains(h.Repos, r.Ref)
	}) || slices.ContainsFunc(v.Over, func(o Ended) bool { return slices.Contains(o.Entry.Repos, r.Ref) })
}

// unsaid reports whether a state may be gone that had a say in a repository. A newer one of the
// same author has taken its place when it was let in.
func (v *Survey) unsaid(r *Repository) bool {
	for author := range v.Why.Unsaid {
		if r.IsMember(author) && !slices.ContainsFunc(v.Stored, func(s *nip34.State) bool { return s.Ref.Owner == author }) {
			return true
		}
	}
	return false
}

// answered reports whether a repository may have gained or lost a maintainer by what one
// of those that are listed said.
func (v *Survey) answered(ref graspsync.RepoRef) bool {
	if len(v.Why.Owners) == 0 {
		return false
	}
	listed, _ := v.Family.Wanted([]graspsync.PubKey{ref.Owner}, nip34.ServedBounds())
	for owner := range v.Why.Owners {
		if _, ok := listed[owner]; ok {
			return true
		}
	}
	return false
}
