package index

import (
	"iter"
	"unique"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/dense"
)

// rootEntry is a root event. It is kept small, because the index contains many.
type rootEntry struct {
	id     graspsync.EventID
	author unique.Handle[graspsync.PubKey]
	at     nostr.Timestamp
	repos  *[]*repoEntry // nil: the entry is free
}

// refs returns the repositories that a root event tags. The slice is immutable.
func (r *rootEntry) refs() []graspsync.RepoRef {
	if len(*r.repos) == 1 {
		return (*r.repos)[0].itself
	}
	refs := make([]graspsync.RepoRef, len(*r.repos))
	for i, repo := range *r.repos {
		refs[i] = repo.ref
	}
	return refs
}

// rootNumber identifies a known root event.
type rootNumber uint32

// rootTable contains the known root events.
type rootTable struct {
	entries dense.Pages[rootEntry]
	free    []rootNumber
	numbers *dense.Finder
}

func newRootTable() *rootTable {
	rs := &rootTable{}
	rs.numbers = dense.NewFinder(func(n uint32) *graspsync.EventID { return &rs.entries.At(n).id })
	return rs
}

func (rs *rootTable) len() int { return rs.numbers.Len() }

func (rs *rootTable) at(n rootNumber) *rootEntry { return rs.entries.At(uint32(n)) }

func (rs *rootTable) number(id graspsync.EventID) (n rootNumber, ok bool) {
	at, ok := rs.numbers.Find(id)
	return rootNumber(at), ok
}

// get returns a root event, or nil. The pointer is valid until the next add or remove.
func (rs *rootTable) get(id graspsync.EventID) *rootEntry {
	if n, ok := rs.number(id); ok {
		return rs.at(n)
	}
	return nil
}

// add adds a root event that is not in the table.
func (rs *rootTable) add(root rootEntry) rootNumber {
	var n rootNumber
	if last := len(rs.free) - 1; last >= 0 {
		n, rs.free = rs.free[last], rs.free[:last]
		*rs.at(n) = root
	} else {
		n = rootNumber(rs.entries.Len()) //nolint:gosec // memory ends before
		rs.entries.Add(root)
	}
	rs.numbers.Add(uint32(n))
	return n
}

func (rs *rootTable) remove(n rootNumber) {
	rs.numbers.Remove(uint32(n))
	*rs.at(n) = rootEntry{}
	rs.free = append(rs.free, n)
}

// all yields copies of all root events. Root events added or removed concurrently may be missing.
func (rs *rootTable) all() iter.Seq2[graspsync.EventID, rootEntry] {
	return func(yield func(graspsync.EventID, rootEntry) bool) {
		for n := 0; n < rs.entries.Len(); n++ {
			if root := *rs.entries.At(uint32(n)); root.repos != nil && !yield(root.id, root) { //nolint:gosec // as above
				return
			}
		}
	}
}
