package refplan

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Refs are the refs of a repository.
type Refs struct {
	At     map[nip34.RefName]nip34.ObjectID
	Head   nip34.RefName // target of HEAD; zero if it is not a branch
	Format nip34.ObjectFormat
}

// RefChange is a change of a ref. Old is zero for a new ref, New for a deleted one.
type RefChange struct {
	Name nip34.RefName
	Old  nip34.ObjectID
	New  nip34.ObjectID
}

// Kind is the type of a git object, with the numbers of git, or zero for a missing object.
type Kind uint8

// The types of git objects.
const (
	Commit Kind = iota + 1
	Tree
	Blob
	Tag
)

// ChangesFor returns the changes that make the branches and tags equal to those of a state, by
// name.
func ChangesFor(now Refs, want *nip34.State) (changes []RefChange, head nip34.RefName) {
	for name, id := range want.Refs {
		if now.At[name] != id {
			changes = append(changes, RefChange{Name: name, Old: now.At[name], New: id})
		}
	}
	for name, id := range now.At {
		if _, stays := want.Refs[name]; !stays && IsState(name) {
			changes = append(changes, RefChange{Name: name, Old: id})
		}
	}
	slices.SortFunc(changes, func(a, b RefChange) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	if _, exists := want.Refs[want.HEAD]; exists && now.Head != want.HEAD {
		head = want.HEAD
	}
	return changes, head
}

// IsState reports whether states decide about a ref.
func IsState(name nip34.RefName) bool { return !strings.HasPrefix(name.String(), "refs/nostr/") }

// Apply returns the refs after changes.
func (r Refs) Apply(changes []RefChange, head nip34.RefName) Refs {
	at := make(map[nip34.RefName]nip34.ObjectID, len(r.At))
	maps.Copy(at, r.At)
	r.At = at
	for _, c := range changes {
		if c.New.IsZero() {
			delete(r.At, c.Name)
		} else {
			r.At[c.Name] = c.New
		}
	}
	if !head.IsZero() {
		r.Head = head
	}
	return r
}

// State returns the distinct objects of branches and tags, sorted.
func (r Refs) State() (ids []nip34.ObjectID) {
	for name, at := range r.At {
		if IsState(name) {
			ids = append(ids, at)
		}
	}
	return distinct(ids)
}

// HasState reports whether any branch or tag exists.
func (r Refs) HasState() bool {
	for name := range r.At {
		if IsState(name) {
			return true
		}
	}
	return false
}

// ObjectsOf returns the distinct ids that a state names, sorted. fits reports whether all have the
// format.
func ObjectsOf(s *nip34.State, format nip34.ObjectFormat) (ids []nip34.ObjectID, fits bool) {
	fits = true
	for _, id := range s.Refs {
		fits = fits && id.Format() == format
		ids = append(ids, id)
	}
	return distinct(ids), fits
}

// distinct returns distinct ids, sorted. It changes ids.
func distinct(ids []nip34.ObjectID) []nip34.ObjectID {
	slices.SortFunc(ids, CompareIDs)
	return slices.Compact(ids)
}

// CompareIDs orders ids.
func CompareIDs(a, b nip34.ObjectID) int { return strings.Compare(a.String(), b.String()) }

// EventOf returns the event id in the name of a pull request's ref.
func EventOf(name nip34.RefName) (graspsync.EventID, bool) {
	hex, _ := strings.CutPrefix(name.String(), "refs/nostr/")
	id, err := graspsync.ParseEventID(hex)
	return id, err == nil
}

// ParseRef parses the name of a branch, of a tag, or of a pull request's ref.
func ParseRef(s string) (nip34.RefName, error) {
	hex, ok := strings.CutPrefix(s, "refs/nostr/")
	if !ok {
		return nip34.ParseRefName(s)
	}
	id, err := graspsync.ParseEventID(hex)
	if err != nil {
		return nip34.RefName{}, errors.New("refs/nostr/ needs an event id")
	}
	return nip34.EventRef(id), nil
}

// Objects are objects that are useful only together.
type Objects struct {
	IDs   []nip34.ObjectID
	State *nip34.State // nil for a pull request
}

// IDsOf returns the distinct ids of objects, sorted.
func IDsOf(sets []Objects) (ids []nip34.ObjectID) {
	for _, set := range sets {
		ids = append(ids, set.IDs...)
	}
	return distinct(ids)
}
