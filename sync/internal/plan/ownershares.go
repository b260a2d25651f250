package plan

import (
	"cmp"
	"container/list"

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

type listedState struct {
	repos  int // number of repositories, at any level
	owners map[*dialOwner]int
	record *dialOwner // owner for whom it counts in the table: the owner with the fewest records; nil if not in the table
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
	if has := rel.listed.record; has != nil && o.records+1 < has.records {
		s.count(rel, o)
	}
	return o
}

func (s *ownerShares) unlist(r *repo, rel *relayState) (o *dialOwner, last bool) {
	o = s.of[r.ref.Owner]
	rel.listed.repos--
	if rel.listed.owners[o]--; rel.listed.owners[o] > 0 {
		return o, false
	}
	delete(rel.listed.owners, o)
	if rel.listed.record == o {
		s.count(rel, rel.listed.least())
	}
	return o, true
}
