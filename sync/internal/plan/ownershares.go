package plan

import (
	"cmp"
	"container/list"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// dialOwner is an author of repositories. Dials, connections and records are shared by owner,
// because relay URLs cost nothing.
type dialOwner struct {
	key     graspsync.PubKey
	repos   map[*repo]struct{} // that list a relay
	records int
	dialing int
	waiting list.List
	turn    *list.Element
}

func (o *dialOwner) stranger() limit.Stranger { return limit.Stranger{ID: string(o.key[:])} }

const maxExamples = 3

type listedState struct {
	repos    int // number of repositories, at any level
	owners   map[*dialOwner]int
	examples []graspsync.RepoRef // at most maxExamples of these repositories
	record   *dialOwner          // owner for whom it counts in the table, the one with the fewest records; nil: not in the table
}

// least returns the owner with the fewest records, or nil if no repository lists the relay.
func (s *listedState) least() (least *dialOwner) {
	for o := range s.owners {
		if least == nil || cmp.Or(cmp.Compare(o.records, least.records), o.key.Compare(least.key)) < 0 {
			least = o
		}
	}
	return least
}

// replaceExample replaces a repository that no longer lists the relay, if it is an example.
func (s *listedState) replaceExample(gone *repo, rel *relayState) {
	i := slices.Index(s.examples, gone.ref)
	if i < 0 {
		return
	}
	s.examples = slices.Delete(s.examples, i, i+1)
	for o := range s.owners {
		for r := range o.repos {
			if r != gone && slices.Contains(r.relays, rel) && !slices.Contains(s.examples, r.ref) {
				s.examples = append(s.examples, r.ref)
				return
			}
		}
	}
}

type ownerShares struct {
	of    map[graspsync.PubKey]*dialOwner
	table *limit.Table[graspsync.RelayURL, *relayState]
}

func newOwners(maxRelays int) *ownerShares {
	return &ownerShares{of: make(map[graspsync.PubKey]*dialOwner), table: limit.NewTable[graspsync.RelayURL, *relayState](maxRelays, 0)}
}

func (s *ownerShares) owner(key graspsync.PubKey) *dialOwner {
	o := s.of[key]
	if o == nil {
		o = &dialOwner{key: key, repos: make(map[*repo]struct{})}
		s.of[key] = o
	}
	return o
}

func (s *ownerShares) drop(o *dialOwner) {
	if len(o.repos)+o.records == 0 {
		delete(s.of, o.key)
	}
}

// enter adds a relay to the table. It returns false if there is no room.
func (s *ownerShares) enter(rel *relayState, o *dialOwner) (evicted []*relayState, ok bool) {
	gone, ok := s.table.PutKeeping(rel.url, o.stranger(), 0, rel, func(u graspsync.RelayURL) bool {
		r, _ := s.table.Get(u)
		return r.bootstrap || r.dial.connected
	})
	if ok {
		rel.listed.record = o
		o.records++
	}
	for _, e := range gone {
		e.Value.listed.record.records--
		e.Value.listed.record = nil
		evicted = append(evicted, e.Value)
	}
	return evicted, ok
}

// count changes the owner for whom a relay in the table counts. nil means none.
func (s *ownerShares) count(rel *relayState, o *dialOwner) {
	rel.listed.record.records--
	rel.listed.record = o
	if o == nil {
		s.table.Delete(rel.url)
		return
	}
	o.records++
	s.table.Put(rel.url, o.stranger(), 0, rel) // replaces the entry of the relay and evicts nothing
}

// list records that a repository lists a relay, and returns its owner.
func (s *ownerShares) list(r *repo, rel *relayState) *dialOwner {
	o := s.owner(r.ref.Owner)
	o.repos[r] = struct{}{}
	rel.listed.repos++
	rel.listed.owners[o]++
	if len(rel.listed.examples) < maxExamples {
		rel.listed.examples = append(rel.listed.examples, r.ref)
	}
	if has := rel.listed.record; has != nil && o.records+1 < has.records {
		s.count(rel, o)
	}
	return o
}

// unlist undoes list.
func (s *ownerShares) unlist(r *repo, rel *relayState) (o *dialOwner, last bool) {
	o = s.of[r.ref.Owner]
	rel.listed.repos--
	rel.listed.replaceExample(r, rel)
	if rel.listed.owners[o]--; rel.listed.owners[o] > 0 {
		return o, false
	}
	delete(rel.listed.owners, o)
	if rel.listed.record == o {
		s.count(rel, rel.listed.least())
	}
	return o, true
}
