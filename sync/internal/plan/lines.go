package plan

import (
	"cmp"
	"container/heap"
	"math"
)

// The lines in which relays wait for their turn to be dialed.
const (
	lineFirst  = iota // bootstrap relays, and those that have brought something before
	lineGood          // those that are known to work
	lineNew           // those that were never tried
	lineFailed        // those that failed
	lines             // how many there are
)

// line is a queue of relays in which owners take turns, however many relays each of
// them names: the n-th of one owner comes after the n-th-but-one of all others. The
// turn of a relay that several owners list is a part of one for each of them, and it
// stands where the one of them puts it who has had least. (This is fair queueing, with
// turns in place of packets.)
type line struct {
	number  int
	waiting lineHeap
	now     uint64 // where the turn began that was served last
	last    uint64 // puts those of one place in order
}

// add has a relay wait at the end of the line, or what that is for its owners.
func (l *line) add(r *relay) {
	r.place, r.cost = l.now, 0
	if n := uint64(len(r.owners)); n > 0 && !r.bootstrap {
		r.place, r.cost = math.MaxUint64, whole/n
		for o := range r.owners {
			o.turns[l.number] = max(l.now, o.turns[l.number]) + r.cost
			r.place = min(r.place, o.turns[l.number])
		}
	}
	l.last++
	r.line, r.order = l, l.last
	heap.Push(&l.waiting, r)
}

// advance has a relay that waits stand no further back than one more owner puts it.
func (l *line) advance(r *relay, o *owner) {
	if r.bootstrap {
		return
	}
	cost := whole / uint64(len(r.owners))
	o.turns[l.number] = max(l.now, o.turns[l.number]) + cost
	if at := o.turns[l.number]; at < r.place {
		r.place, r.cost = at, cost
		heap.Fix(&l.waiting, r.lineIndex)
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
func (r *relay) leave() {
	if r.line != nil {
		heap.Remove(&r.line.waiting, r.lineIndex)
		r.line = nil
	}
}

// served takes out a relay whose turn it was.
func (r *relay) served() {
	r.line.now = max(r.line.now, r.place-r.cost)
	r.leave()
}

// lineHeap has the relay first whose turn is next.
type lineHeap []*relay

func (h lineHeap) Len() int { return len(h) }

func (h lineHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].place, h[j].place), cmp.Compare(h[i].order, h[j].order)) < 0
}

func (h lineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].lineIndex, h[j].lineIndex = i, j
}

// Push and Pop implement [heap.Interface].
func (h *lineHeap) Push(x any) {
	r := x.(*relay)
	r.lineIndex = len(*h)
	*h = append(*h, r)
}

func (h *lineHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}
