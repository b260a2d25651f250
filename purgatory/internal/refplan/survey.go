package refplan

import (
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Reasons are the reasons for a survey. Repositories that they are not about are left alone.
type Reasons struct {
	// Fresh are the events whose data is to be fetched as if it were new, with whether a client
	// submitted them.
	Fresh map[graspsync.EventID]bool
	// Owners are the authors of new announcements, with whether a client submitted them. The
	// announcements may name new servers.
	Owners map[graspsync.PubKey]bool
	// Gained are repositories that have received objects, which others may lack.
	Gained map[graspsync.RepoRef]bool
	// Left are repositories that may not be announced any more.
	Left map[graspsync.RepoRef]bool
	// Unsaid are authors whose state may be deleted. Another state may decide now.
	Unsaid map[graspsync.PubKey]bool
	Check  bool // the hourly check: stored events are examined as well
	Late   bool // see Group.Late
}

// And returns the union.
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

// Survey is the input for the decision which repositories to release.
type Survey struct {
	*Group
	Why       Reasons
	Touched   map[graspsync.RepoRef]uint64   // number of the last touch
	Lacking   map[graspsync.RepoRef]bool     // that lack data
	Stale     map[graspsync.RepoRef]bool     // that lack data for events that are not held any more
	Releasing map[graspsync.RepoRef]struct{} // whose release is under way, so that it is unknown what they lack
}

// AffectedRepos is the result of a survey.
type AffectedRepos struct {
	Release  []graspsync.RepoRef // repositories to release
	Complete []graspsync.RepoRef // repositories that lack nothing any more, because no event names missing data
	// Untouched are repositories that need no release for their touches.
	Untouched map[graspsync.RepoRef]uint64
	Cut       bool // more repositories were to be released
}

// AffectedRepos returns at most so many repositories to release. Owners of held states come first, and
// the others are shuffled. Repositories that nobody announces any more are added.
func (v *Survey) AffectedRepos(most int, shuffle func(n int, swap func(i, j int))) (out AffectedRepos) {
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

// concerns reports whether a repository must be released for the reasons: events wait for it, it
// lacks data, or it was touched. The others cost nothing.
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

// serves reports whether an event names data of a repository.
func (v *Survey) serves(r *Repository) bool {
	_, waits := v.Waiting[r.Ref]
	return waits || v.WaitsFor(r) || v.NewestStored(r) != nil
}

// affects reports whether the reasons are about a repository.
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

// unsaid reports whether a state of a maintainer may be deleted. A newer state of the same author
// does not count, since it has replaced the older one.
func (v *Survey) unsaid(r *Repository) bool {
	for author := range v.Why.Unsaid {
		if r.IsMember(author) && !slices.ContainsFunc(v.Stored, func(s *nip34.State) bool { return s.Ref.Owner == author }) {
			return true
		}
	}
	return false
}

// answered reports whether a new announcement may add or remove a maintainer of a repository.
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
