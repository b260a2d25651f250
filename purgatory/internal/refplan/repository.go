package refplan

import (
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Repository is the state of one repository during a release or survey.
type Repository struct {
	Ref     graspsync.RepoRef
	Members map[graspsync.PubKey]struct{}
	Refs    Refs
	Found   map[nip34.ObjectID]struct{}    // complete objects
	Missing map[nip34.ObjectID]struct{}    // needed objects that are missing or incomplete
	Kinds   map[nip34.ObjectID]Kind        // of existing objects
	Unfit   map[graspsync.EventID]struct{} // states that git refuses
	Refused map[graspsync.EventID]struct{} // pull requests without room for a ref; nil before the decision
	// Merged are pull requests whose commit a branch or a tag contains. They need no ref.
	Merged map[graspsync.EventID]struct{}
	// Evicted are removals of pull request refs that make room for others.
	Evicted []RefChange
	Pushed  map[nip34.RefName]struct{} // refs moved by pushes while a state was held
	Decides *nip34.State               // state that decides about the refs, or nil
	Active  bool                       // its announcement is accepted or about to be
}

// MissingOf returns the distinct missing objects of sets, sorted.
func (r *Repository) MissingOf(sets []Objects) (ids []nip34.ObjectID) {
	for _, set := range sets {
		ids = append(ids, slices.DeleteFunc(slices.Clone(set.IDs), func(id nip34.ObjectID) bool { return !r.Misses(id) })...)
	}
	slices.SortFunc(ids, CompareIDs)
	return slices.Compact(ids)
}

// Here reports whether a state is complete and acceptable to git.
func (r *Repository) Here(s *nip34.State) bool {
	ids, fits := ObjectsOf(s, r.Refs.Format)
	return fits && !r.IsUnfit(s) && !slices.ContainsFunc(ids, r.Lacks)
}

// Has reports whether an object is known to be complete.
func (r *Repository) Has(id nip34.ObjectID) bool {
	_, found := r.Found[id]
	return found
}

// Lacks reports whether an object is not known to be complete.
func (r *Repository) Lacks(id nip34.ObjectID) bool { return !r.Has(id) }

// Misses reports whether an object is known to be missing or incomplete.
func (r *Repository) Misses(id nip34.ObjectID) bool {
	_, missing := r.Missing[id]
	return missing
}

// Absent returns the missing objects of a state. It returns nil if git would refuse the state.
func (r *Repository) Absent(s *nip34.State) []nip34.ObjectID {
	ids, fits := ObjectsOf(s, r.Refs.Format)
	if !fits || r.IsUnfit(s) {
		return nil
	}
	return slices.DeleteFunc(ids, func(id nip34.ObjectID) bool { return !r.Misses(id) })
}

// IsMember reports whether a key is a maintainer.
func (r *Repository) IsMember(author graspsync.PubKey) bool {
	_, member := r.Members[author]
	return member
}

// As reports whether a repository has the right object format, or cannot change it because it has
// refs.
func (r *Repository) As(g *Group) bool {
	format, known := g.FormatOf(r)
	return !known || r.Refs.Format == format || len(r.Refs.At) > 0
}

// Releases reports whether a held state can be stored. The state must be complete, the repository
// active, and its refs those of this or a newer state.
func (r *Repository) Releases(h Entry) bool {
	return r.Active && r.IsMember(h.Author) && r.Here(h.State) &&
		r.Decides != nil && !h.Version.Newer(r.Decides.Key())
}

// Related reports whether two repositories have a common maintainer.
func (r *Repository) Related(o *Repository) bool {
	for member := range r.Members {
		if o.IsMember(member) {
			return true
		}
	}
	return false
}

// NotThere returns the ids that certainly do not exist.
func (r *Repository) NotThere(ids []nip34.ObjectID) []nip34.ObjectID {
	return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return r.Kinds[id] != 0 })
}

// IsUnfit reports whether git would refuse a state, because it did so before, a branch does not
// name a commit, or a ref has an abbreviated object id.
func (r *Repository) IsUnfit(s *nip34.State) bool {
	if _, refused := r.Unfit[s.ID]; refused || s.Abbreviated {
		return true
	}
	for name, id := range s.Refs {
		if kind := r.Kinds[id]; kind != 0 && kind != Commit && strings.HasPrefix(name.String(), "refs/heads/") {
			r.Unfit[s.ID] = struct{}{}
			return true
		}
	}
	return false
}
