package plan

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/graspsync/graspsync/filters"
)

// owner is the author of repositories. What the relays that strangers name have to
// share, which is turns to be dialed, connections and places in the table of relays,
// is shared by owner: a name is free, and so is a list of a thousand of them.
type owner struct {
	key    filters.PubKey
	repos  map[*repo]struct{}
	relays map[*relay]struct{} // that they list
	idle   int                 // of these, those that have brought nothing
	using  int                 // relays that are connected, dialed, or wait for that
	turns  [lines]uint64       // place in each line up to which it has had its turns
	load   uint64              // of the connections, its part; see weigh
	index  int                 // in the heap of owners
}

// owners are those of all repositories that list a relay.
type owners struct {
	of    map[filters.PubKey]*owner
	heap  ownerHeap
	using int // owners with relays that use connections, or wait for one
}

// list notes that a repository lists a relay.
func (s *owners) list(r *repo, rel *relay) {
	o := s.of[r.ref.Owner]
	if o == nil {
		o = &owner{key: r.ref.Owner, repos: make(map[*repo]struct{}), relays: make(map[*relay]struct{})}
		s.of[o.key] = o
		heap.Push(&s.heap, o)
	}
	o.repos[r] = struct{}{}
	if rel.owners[o]++; rel.owners[o] > 1 {
		return
	}
	o.relays[rel] = struct{}{}
	if rel.using {
		s.use(o, 1)
	}
	if !rel.useful {
		s.idle(o, 1)
	}
	if rel.line != nil {
		rel.line.advance(rel, o)
	}
}

// unlist notes that a repository does not list a relay any more.
func (s *owners) unlist(r *repo, rel *relay) {
	o := s.of[r.ref.Owner]
	if len(r.relays) == 0 {
		delete(o.repos, r)
	}
	if rel.owners[o]--; rel.owners[o] > 0 {
		return
	}
	delete(rel.owners, o)
	delete(o.relays, rel)
	if rel.using {
		s.use(o, -1)
	}
	if !rel.useful {
		s.idle(o, -1)
	}
	if len(o.relays) == 0 {
		delete(s.of, o.key)
		heap.Remove(&s.heap, o.index)
	}
}

func (s *owners) use(o *owner, n int) {
	before := o.using > 0
	o.using += n
	switch after := o.using > 0; {
	case after && !before:
		s.using++
	case before && !after:
		s.using--
	}
}

func (s *owners) idle(o *owner, n int) {
	o.idle += n
	heap.Fix(&s.heap, o.index)
}

// setUsing notes whether a relay uses a connection, or waits for one.
func (s *owners) setUsing(r *relay, using bool) {
	if r.using == using {
		return
	}
	r.using = using
	n := 1
	if !using {
		n = -1
	}
	for o := range r.owners {
		s.use(o, n)
	}
}

// setUseful notes that a relay has brought something.
func (s *owners) setUseful(r *relay) {
	if r.useful {
		return
	}
	r.useful = true
	for o := range r.owners {
		s.idle(o, -1)
	}
}

// whole is a connection, or a turn to be dialed. A relay's is divided among the owners
// that list it.
const whole = 1 << 20

// weigh finds out how much of the connections the owner of each relay has, the one who
// has least if there are several. It returns the most of that, and how much each owner
// would have if all that want any had the same.
func (s *owners) weigh(connected map[*relay]struct{}) (most, equal uint64) {
	for r := range connected {
		for o := range r.owners {
			o.load = 0
		}
	}
	for r := range connected {
		for o := range r.owners {
			o.load += whole / uint64(len(r.owners))
		}
	}
	for r := range connected {
		r.load = math.MaxUint64
		for o := range r.owners {
			r.load = min(r.load, o.load)
		}
		if !r.bootstrap {
			most = max(most, r.load)
		}
	}
	return most, whole * uint64(len(connected)) / uint64(max(1, s.using))
}

// ownerShare is how many relays that have brought nothing one owner may have us know,
// as a part of all. That is far more than anybody has repositories on, and makes it
// some work to fill the table.
const (
	ownerShare = 64
	ownerLeast = 64
)

// room makes sure that the table has room for one more relay, which a repository of
// this owner lists. Where it is full, the owner who has most relays in it that have
// brought nothing loses one of them, unless that would have no more than the one who
// asks. The relays that the repository listed before stay, as do those that it lists
// besides by now.
func (p *Plan) room(asks filters.PubKey, before, besides []*relay) bool {
	mine := 0
	if o := p.owners.of[asks]; o != nil {
		mine = o.idle
	}
	for _, r := range besides {
		if len(r.owners) == 0 { // known for a moment
			mine++
		}
	}
	if mine >= max(ownerLeast, p.cfg.MaxRelays/ownerShare) {
		return false
	}
	if len(p.relays) < p.cfg.MaxRelays {
		return true
	}
	if len(p.owners.heap) == 0 || p.owners.heap[0].idle <= mine+1 {
		return false
	}
	var victim *relay
	for r := range p.owners.heap[0].relays {
		if r.useful || r.bootstrap || slices.Contains(before, r) || slices.Contains(besides, r) {
			continue
		}
		if victim == nil || compareWorth(r, victim) < 0 {
			victim = r
		}
	}
	if victim == nil {
		return false
	}
	p.evict(victim)
	return true
}

// compareWorth orders relays that have brought nothing: first those that are of
// least use. One that many list is more likely to be a relay.
func compareWorth(a, b *relay) int {
	rank := func(r *relay) int {
		switch {
		case r.connected && !r.unproven:
			return 3
		case r.good:
			return 2
		case r.failed:
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(len(a.owners), len(b.owners)), cmp.Compare(rank(a), rank(b)), a.url.Compare(b.url))
}

// evict forgets a relay that is wanted, for lack of room.
func (p *Plan) evict(rel *relay) {
	var listing []*repo
	for o := range rel.owners {
		for r := range o.repos {
			if slices.Contains(r.relays, rel) {
				listing = append(listing, r)
			}
		}
	}
	for _, r := range listing {
		r.relays = slices.DeleteFunc(slices.Clone(r.relays), func(o *relay) bool { return o == rel })
		p.unlists(r, rel)
	}
	p.forget(rel)
	p.refuse()
}

// refuse notes that a relay is wanted that is not known.
func (p *Plan) refuse() {
	p.emit(Dropped{Reason: "relays", Count: 1})
	p.refused = true
}

// ownerHeap has the owner first who has most relays that have brought nothing.
type ownerHeap []*owner

func (h ownerHeap) Len() int { return len(h) }

func (h ownerHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[j].idle, h[i].idle), h[i].key.Compare(h[j].key)) < 0
}

func (h ownerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push and Pop implement [heap.Interface].
func (h *ownerHeap) Push(x any) {
	o := x.(*owner)
	o.index = len(*h)
	*h = append(*h, o)
}

func (h *ownerHeap) Pop() any {
	old := *h
	o := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return o
}
