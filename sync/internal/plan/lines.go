package plan

import (
	"cmp"
	"container/heap"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"net/netip"
)

// The lines in which relays wait for their turn to be dialed.
const (
	lineFirst  = iota // bootstrap relays, and those that have brought something lately
	lineGood          // those that are known to work
	lineNew           // those that were never tried
	lineFailed        // those that failed
	lineHeld          // those of owners of whom nothing is served
	lines             // how many there are
)

// line is a queue of relays in which owners take turns, by what they weigh, however many
// relays each of them names: of owners who weigh the same the n-th of one comes after
// the n-th-but-one of all others. The turn of a relay that several owners list is a part
// of one for each of them, and it stands where the one of them puts it who has had
// least. (This is fair queueing, with turns in place of packets.) What would stand at the
// same place, as the first relays of new owners do, is mixed: who comes with a thousand
// at once is not a thousand places ahead of who comes next.
type line struct {
	number  int
	lots    *rand.Rand
	waiting lineHeap
	now     uint64 // where the turn began that was served last
	count   uint64 // of those served
	last    uint64 // puts what is left in order
	flows   map[flow]uint64
}

// turnState is where a relay waits for its turn to be dialed.
type turnState struct {
	line        *line  // nil if it is in none
	place, cost uint64 // its place there, and what of a turn it takes
	order, came uint64 // puts those of one place in order
	index       int
}

// flow are relays at one address that have as much claim as one another. They take their
// turns as if one owner listed them all: names are free, like keys. Those that have more
// claim do not wait for those that have less, which may be somebody else's.
type flow struct {
	address netip.Prefix
	claim   int // its bits
}

// mostFlows is how many are kept, besides one for each relay that waits, whose turns are
// over.
const mostFlows = 1_000

// share puts a relay behind those at its address.
func (l *line) share(r *relay) {
	if !r.dial.address.IsValid() || r.bootstrap {
		return
	}
	f := flow{r.dial.address, bits.Len64(r.claim.weight)}
	if l.flows == nil {
		l.flows = make(map[flow]uint64)
	}
	r.turn.place = max(r.turn.place, l.flows[f]+r.turn.cost)
	l.flows[f] = r.turn.place
	if len(l.flows) > mostFlows+2*len(l.waiting) {
		maps.DeleteFunc(l.flows, func(_ flow, at uint64) bool { return at <= l.now })
	}
}

// turn is what a relay of one owner of weight 1 takes of the line.
const turn = 1 << 26

const (
	// shortLine is how many may wait in the order in which they came.
	shortLine = 16
	// mixed is among how many others who comes to a longer one is put. That is far more
	// than are served in an hour; who has waited for so many is before all who come.
	mixed = 1 << 16
)

// add puts a relay at the end of the line, or at what that is for its owners.
func (l *line) add(r *relay) {
	r.turn.place, r.turn.cost = l.now, 0
	if n := uint64(len(r.claim.accounts)); n > 0 && n <= mostShown && !r.bootstrap {
		r.turn.place = math.MaxUint64
		for a := range r.claim.accounts {
			cost, had := a.cost(n), &a.turns[a.side][l.number]
			*had = max(l.now, *had) + cost
			if at := *had; at < r.turn.place || at == r.turn.place && cost < r.turn.cost {
				r.turn.place, r.turn.cost = at, cost
			}
		}
	}
	l.share(r)
	l.last++
	r.turn.line, r.turn.order, r.turn.came = l, l.count, l.last
	if len(l.waiting) >= shortLine {
		r.turn.order += l.lots.Uint64N(mixed)
	}
	heap.Push(&l.waiting, r)
}

// advance moves a waiting relay forward to the place that one more owner gives it, if that is
// further ahead.
func (l *line) advance(r *relay, a account) {
	n := uint64(len(r.claim.accounts))
	if r.bootstrap || n > mostShown || r.dial.address.IsValid() {
		return
	}
	cost, had := a.cost(n), &a.turns[a.side][l.number]
	*had = max(l.now, *had) + cost
	if at := *had; at < r.turn.place {
		r.turn.place, r.turn.cost = at, cost
		heap.Fix(&l.waiting, r.turn.index)
	}
}

// first returns whose turn it is, nil if nobody waits.
func (l *line) first() *relay {
	if len(l.waiting) == 0 {
		return nil
	}
	return l.waiting[0]
}

// leave takes a relay out of the line that it waits in, if any.
func (s *turnState) leave() {
	if s.line != nil {
		heap.Remove(&s.line.waiting, s.index)
		s.line = nil
	}
}

// served takes out a relay whose turn it was.
func (s *turnState) served() {
	s.line.now = max(s.line.now, s.place-s.cost)
	l := s.line
	l.count++
	s.leave()
	if len(l.waiting) == 0 {
		l.now, l.flows = max(l.now, s.place), nil // all had their turns
	}
}

// lineHeap has the relay first whose turn is next.
type lineHeap []*relay

func (h lineHeap) Len() int { return len(h) }

func (h lineHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].turn.place, h[j].turn.place), cmp.Compare(h[i].turn.order, h[j].turn.order), cmp.Compare(h[i].turn.came, h[j].turn.came)) < 0
}

func (h lineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].turn.index, h[j].turn.index = i, j
}

// Push and Pop implement [heap.Interface].
func (h *lineHeap) Push(x any) {
	r := x.(*relay)
	r.turn.index = len(*h)
	*h = append(*h, r)
}

func (h *lineHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}
