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
