package refplan

import (
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Repository is what is known of one repository.
type Repository struct {
	Ref     graspsync.RepoRef
	Members map[graspsync.PubKey]struct{}
	Refs    Refs
	Found   map[nip34.ObjectID]struct{}    // what is here, with all that it needs
	Missing map[nip34.ObjectID]struct{}    // what was not, of what is of use
	Kinds   map[nip34.ObjectID]Kind        // of what is there
	Unfit   map[graspsync.EventID]struct{} // states that can't be its refs
	Refused map[graspsync.EventID]struct{} // pull requests that may have no ref; nil: none is looked at yet
	// Merged are pull requests whose commit a branch or a tag has: they need no ref.
	Merged map[graspsync.EventID]struct{}
	// Evicted are the refs of pull requests that give way.
	Evicted []RefChange
	Pushed  map[nip34.RefName]struct{} // refs that pushes have moved while a state waited
	Decides *nip34.State               // what its refs are now, but for these; nil: nobody says
	Active  bool                       // its announcement is accepted, or about to be
}

// MissingOf returns what is missing of some objects, in order.
func (r *Repository) MissingOf(sets []Objects) (ids []nip34.ObjectID) {
	for _, set := range sets {
		ids = append(ids, slices.DeleteFunc(slices.Clone(set.IDs), func(id nip34.ObjectID) bool { return !r.Misses(id) })...)
	}
	slices.SortFunc(ids, CompareIDs)
	return slices.Compact(ids)
}

// Here reports whether every object that a state names is in the repository, and can be
// what it says.
func (r *Repository) Here(s *nip34.State) bool {
	ids, fits := ObjectsOf(s, r.Refs.Format)
	return fits && !r.IsUnfit(s) && !slices.ContainsFunc(ids, r.Lacks)
}

// Has reports whether an object is known to be here with all that it needs.
func (r *Repository) Has(id nip34.ObjectID) bool {
	_, found := r.Found[id]
	return found
}

// Lacks reports whether an object is not known to be here with all that it needs.
func (r *Repository) Lacks(id nip34.ObjectID) bool { return !r.Has(id) }

// Misses reports whether an object, or something that it needs, is known not to be here.
func (r *Repository) Misses(id nip34.ObjectID) bool {
	_, missing := r.Missing[id]
	return missing
}

// Absent returns the objects of a state that a repository lacks; none if it could not
// have them.
func (r *Repository) Absent(s *nip34.State) []nip34.ObjectID {
	ids, fits := ObjectsOf(s, r.Refs.Format)
	if !fits || r.IsUnfit(s) {
		return nil
	}
	return slices.DeleteFunc(ids, func(id nip34.ObjectID) bool { return !r.Misses(id) })
}

// IsMember reports whether somebody has a say in a repository.
func (r *Repository) IsMember(author graspsync.PubKey) bool {
	_, member := r.Members[author]
	return member
}

// As reports whether a repository hashes its objects as it should, or can't any more.
func (r *Repository) As(g *Group) bool {
	format, known := g.FormatOf(r)
	return !known || r.Refs.Format == format || len(r.Refs.At) > 0
}

// Releases reports whether a state that waits can be served: its objects are in an
// active repository that it concerns, whose refs are what it says, or something newer.
func (r *Repository) Releases(h Entry) bool {
	return r.Active && r.IsMember(h.Author) && r.Here(h.State) &&
		r.Decides != nil && !h.Version.Newer(r.Decides.Stamp())
}

// Related reports whether somebody has a say in both repositories: what that one says
// that they are is here once for both.
func (r *Repository) Related(o *Repository) bool {
	for member := range r.Members {
		if o.IsMember(member) {
			return true
		}
	}
	return false
}

// NotThere returns those of ids that are certainly not here.
func (r *Repository) NotThere(ids []nip34.ObjectID) []nip34.ObjectID {
	return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return r.Kinds[id] != 0 })
}

// IsUnfit reports whether git would refuse a state: it has before, a branch of it is no
// commit, or a ref of it has an abbreviated object id.
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
