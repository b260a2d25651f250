package plan

import (
	"cmp"
	"container/list"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// owner is the author of repositories. Turns to be dialed, connections and places in the table of relays are
// shared by owner, because a URL is free, and so is a list of a thousand URLs. All owners are alike: what a
// key has done so far can be faked.
type dialOwner struct {
	key         graspsync.PubKey
	repos       map[*repo]struct{} // that list a relay
	records     int                // relays whose place in the table counts for it
	connections int                // connections that count for it
	dialing     int                // attempts that were its turn
	waiting     list.List          // of *relay, the next one to be dialed first
	turn        *list.Element      // its place among the owners with waiting relays; nil if there is no such relay
}

func (o *dialOwner) stranger() limit.Stranger { return limit.Stranger{ID: string(o.key[:])} }

// listedState is which repositories list a relay.
type listedState struct {
	repos    int                 // number of repositories that list it, whatever their level
	owners   map[*dialOwner]int  // number of these repositories by owner
	record   *dialOwner          // the owner for whom the place in the table counts; nil if the relay is not in the table
	examples []graspsync.RepoRef // a few repositories that list it
}

// least returns the owner of whom something counts least. It returns nil if no repository lists the relay.
func (s *listedState) least(count func(*dialOwner) int) (least *dialOwner) {
	for o := range s.owners {
		if least == nil || cmp.Or(cmp.Compare(count(o), count(least)), o.key.Compare(least.key)) < 0 {
			least = o
		}
	}
	return least
}

// owners are the owners of all repositories that list a relay, and the table of these relays.
type ownerShares struct {
	of    map[graspsync.PubKey]*dialOwner
	table *limit.Table[graspsync.RelayURL, *relayState]
}

func newOwners(maxRelays int) *ownerShares {
	return &ownerShares{of: make(map[graspsync.PubKey]*dialOwner), table: limit.NewTable[graspsync.RelayURL, *relayState](maxRelays, 0)}
}

// owner returns the owner of this key, making it known.
func (s *ownerShares) owner(key graspsync.PubKey) *dialOwner {
	o := s.of[key]
	if o == nil {
		o = &dialOwner{key: key, repos: make(map[*repo]struct{})}
		s.of[key] = o
	}
	return o
}

// drop forgets an owner whose repositories list no relay.
func (s *ownerShares) drop(o *dialOwner) {
	if len(o.repos)+o.records == 0 {
		delete(s.of, o.key)
	}
}

// enter puts a relay into the table. It returns the relays that were evicted for it, and whether there was room.
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

// count has the place of a relay in the table count for another owner; nil for none.
func (s *ownerShares) count(rel *relayState, o *dialOwner) {
	rel.listed.record.records--
	rel.listed.record = o
	if o == nil {
		s.table.Delete(rel.url)
		return
	}
	o.records++
	s.table.Put(rel.url, o.stranger(), 0, rel) // in its own place: it evicts nothing
}

// list notes that a repository lists a relay. It reports whether it is the first one of its owner.
func (s *ownerShares) list(r *repo, rel *relayState) (o *dialOwner, first bool) {
	o = s.owner(r.ref.Owner)
	o.repos[r] = struct{}{}
	rel.listed.repos++
	rel.listed.owners[o]++
	if has := rel.listed.record; has != nil && o.records+1 < has.records {
		s.count(rel, o)
	}
	return o, rel.listed.owners[o] == 1
}

// unlist notes that a repository does not list a relay any more. It reports whether it was the last one of its owner.
func (s *ownerShares) unlist(r *repo, rel *relayState) (o *dialOwner, last bool) {
	o = s.of[r.ref.Owner]
	rel.listed.repos--
	if rel.listed.owners[o]--; rel.listed.owners[o] > 0 {
		return o, false
	}
	delete(rel.listed.owners, o)
	if rel.listed.record == o {
		s.count(rel, rel.listed.least(func(o *dialOwner) int { return o.records }))
	}
	return o, true
}
