package refplan

import (
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Reasons are the reasons for a survey.
type Reasons struct {
	// Fresh are events whose data is fetched as if it were new. The value is true for events of
	// clients, as in Owners.
	Fresh map[graspsync.EventID]bool
	// Owners are authors of new announcements, which may name new servers.
	Owners map[graspsync.PubKey]bool
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
		Fresh: joined(c.Fresh, o.Fresh), Owners: joined(c.Owners, o.Owners), Gained: joined(c.Gained, o.Gained), Left: joined(c.Left, o.Left),
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

// Survey is the input of AffectedRepos.
type Survey struct {
	*Group
	Touched   map[graspsync.RepoRef]uint64   // number of the last touch
	Lacking   map[graspsync.RepoRef]bool     // repositories that lack data
	Stale     map[graspsync.RepoRef]bool     // repositories that lack data for events no longer held
	Releasing map[graspsync.RepoRef]struct{} // repositories in release, whose missing data is unknown
}

// AffectedRepos is the result of a survey.
type AffectedRepos struct {
	Release  []graspsync.RepoRef // repositories to release
	Complete []graspsync.RepoRef // repositories that lack nothing, because no event names missing data
	// Untouched are repositories whose touches need no release.
	Untouched map[graspsync.RepoRef]uint64
	Cut       bool // the limit was reached
}

// AffectedRepos returns at most most repositories to release, and those without announcement.
// Owners of held states come first, the others in random order.
func (v *Survey) AffectedRepos(most int, shuffle func(n int, swap func(i, j int))) (out AffectedRepos) {
	gone := make(map[graspsync.RepoRef]bool) // without announcement
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

// concerns reports whether the reasons require a release of a repository.
func (v *Survey) concerns(r *Repository) bool {
	if v.Why.Check {
		return true
	}
	_, touched := v.Touched[r.Ref]
	_, looks := v.Releasing[r.Ref]
	touched = touched || looks || v.Lacking[r.Ref] || v.answered(r.Ref) || v.deleted(r)
	_, waits := v.Waiting[r.Ref]
	return v.affects(r) && (v.WaitsFor(r) || touched && (waits || v.NewestStored(r) != nil))
}

// serves reports whether an event needs data of a repository.
func (v *Survey) serves(r *Repository) bool {
	_, waits := v.Waiting[r.Ref]
	return waits || v.WaitsFor(r) || v.NewestStored(r) != nil
}

// affects reports whether the reasons concern a repository.
func (v *Survey) affects(r *Repository) bool {
	if _, touched := v.Touched[r.Ref]; touched || v.Stale[r.Ref] || v.answered(r.Ref) || v.deleted(r) {
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

// deleted reports whether a state of a member without another stored state may be deleted.
func (v *Survey) deleted(r *Repository) bool {
	for author := range v.Why.Deleters {
		if r.IsMember(author) && !slices.ContainsFunc(v.Stored, func(s *nip34.State) bool { return s.Ref.Owner == author }) {
			return true
		}
	}
	return false
}

// answered reports whether a new announcement may add or remove a member of a repository.
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
