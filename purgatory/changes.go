package purgatory

import (
	"slices"
	"strings"

	"github.com/graspsync/graspsync/nip34"
)

// changesFor returns what makes the branches and tags of a repository those that a
// state names, in order of their names. The refs of pull requests are left alone.
func changesFor(now Refs, want *nip34.State) (changes []RefChange, head nip34.RefName) {
	for name, id := range want.Refs {
		if now.At[name] != id {
			changes = append(changes, RefChange{Name: name, Old: now.At[name], New: id})
		}
	}
	for name, id := range now.At {
		if _, stays := want.Refs[name]; !stays && isState(name) {
			changes = append(changes, RefChange{Name: name, Old: id})
		}
	}
	slices.SortFunc(changes, func(a, b RefChange) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	if _, exists := want.Refs[want.HEAD]; exists && now.Head != want.HEAD {
		head = want.HEAD
	}
	return changes, head
}

// isState reports whether a ref is one that states name.
func isState(name nip34.RefName) bool { return !strings.HasPrefix(name.String(), "refs/nostr/") }

// apply returns the refs after changes.
func (r Refs) apply(changes []RefChange, head nip34.RefName) Refs {
	out := Refs{At: make(map[nip34.RefName]nip34.ObjectID, len(r.At)), Head: r.Head, Format: r.Format}
	for name, id := range r.At {
		out.At[name] = id
	}
	for _, c := range changes {
		if c.New.IsZero() {
			delete(out.At, c.Name)
		} else {
			out.At[c.Name] = c.New
		}
	}
	if !head.IsZero() {
		out.Head = head
	}
	return out
}

// hasState reports whether any branch or tag exists.
func (r Refs) hasState() bool {
	for name := range r.At {
		if isState(name) {
			return true
		}
	}
	return false
}

// objectsOf returns the ids that a state names, each once, in order, and whether all
// of them are of the format.
func objectsOf(s *nip34.State, format nip34.ObjectFormat) (ids []nip34.ObjectID, fits bool) {
	fits = true
	for _, id := range s.Refs {
		fits = fits && id.Format() == format
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids), fits
}

func compareIDs(a, b nip34.ObjectID) int { return strings.Compare(a.String(), b.String()) }
