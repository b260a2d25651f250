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
	Refused map[graspsync.EventID]struct{} // pull requests without room for a ref; nil before the decision
	// Merged are pull requests whose commit a branch or a tag contains.
	Merged map[graspsync.EventID]struct{}
	// Evicted are removals of refs that make room for others.
	Evicted       []RefChange
	Pushed        map[nip34.RefName]struct{} // refs moved by pushes while a state was held
	DecidingState *nip34.State               // state that decides about the refs, or nil
	Active        bool                       // its announcement is stored or about to be
}

// MissingOf returns the missing objects of sets.
func (r *Repository) MissingOf(sets []Objects) []nip34.ObjectID {
	return slices.DeleteFunc(IDsOf(sets), func(id nip34.ObjectID) bool { return !r.IsKnownMissing(id) })
}

// IsComplete reports whether a state is complete and acceptable to git.
func (r *Repository) IsComplete(s *nip34.State) bool {
	ids, fits := ObjectsOf(s, r.Refs.Format)
	return fits && r.isFit(s) && !slices.ContainsFunc(ids, r.IsIncomplete)
}

// Has reports whether an object is complete.
func (r *Repository) Has(id nip34.ObjectID) bool {
	_, found := r.Found[id]
	return found
}

// IsIncomplete is the opposite of Has.
func (r *Repository) IsIncomplete(id nip34.ObjectID) bool { return !r.Has(id) }

// IsKnownMissing reports whether an object is known to be missing.
func (r *Repository) IsKnownMissing(id nip34.ObjectID) bool {
	_, missing := r.Missing[id]
	return missing
}

// MissingOfState returns the missing objects of a state that git would accept.
func (r *Repository) MissingOfState(s *nip34.State) []nip34.ObjectID {
	ids, fits := ObjectsOf(s, r.Refs.Format)
	if !fits || r.IsUnfit(s) {
		return nil
	}
	return slices.DeleteFunc(ids, func(id nip34.ObjectID) bool { return !r.IsKnownMissing(id) })
}

// IsMember reports whether a key is a member.
func (r *Repository) IsMember(author graspsync.PubKey) bool {
	_, member := r.Members[author]
	return member
}

// HasFormat reports whether a repository has the right object format, or cannot change it because it
// has refs.
func (r *Repository) HasFormat(g *Group) bool {
	format, known := g.FormatOf(r)
	return !known || r.Refs.Format == format || len(r.Refs.At) > 0
}

// CanStore reports whether a held state can be stored: it is complete, the repository active, and
// its refs those of this or a newer state.
func (r *Repository) CanStore(h Entry) bool {
	return r.Active && r.IsMember(h.Author) && r.IsComplete(h.State) &&
		r.DecidingState != nil && !h.Version.Newer(r.DecidingState.Key())
}

// IsRelated reports whether two repositories have a common member.
func (r *Repository) IsRelated(o *Repository) bool {
	for member := range r.Members {
		if o.IsMember(member) {
			return true
		}
	}
	return false
}

// NotOnDisk returns the ids of objects that do not exist.
func (r *Repository) NotOnDisk(ids []nip34.ObjectID) []nip34.ObjectID {
	return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return r.Kinds[id] != 0 })
}

// IsUnfit reports whether git would refuse a state, because a branch names no commit or an id is
// abbreviated.
func (r *Repository) IsUnfit(s *nip34.State) bool {
	for name, id := range s.Refs {
		if kind := r.Kinds[id]; kind != 0 && kind != Commit && strings.HasPrefix(name.String(), "refs/heads/") {
			return true
		}
	}
	return s.Abbreviated
}

func (r *Repository) isFit(s *nip34.State) bool { return !r.IsUnfit(s) }
