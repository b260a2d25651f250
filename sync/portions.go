package sync

import (
	"bytes"
	"cmp"
	"container/heap"
)

// portions are all who have something of what is shared: a heap with the one in front who has
// most, of those who have as much the one with the least key. To look at all of them for each
// event that is one too many is what a flood would make us do.
type portions []*portion

// portion is what one of them has.
type portion struct {
	key  [32]byte // whose it is
	size int
	spot int // in the heap
}

// change gives one more of what is shared, or less. Who has nothing is not one of them.
func (ps *portions) change(p *portion, more int) {
	before := p.size
	switch p.size += more; {
	case before == 0:
		heap.Push(ps, p)
	case p.size == 0:
		heap.Remove(ps, p.spot)
	default:
		heap.Fix(ps, p.spot)
	}
}

func (ps portions) Len() int { return len(ps) }

func (ps portions) Less(i, j int) bool {
	a, b := ps[i], ps[j]
	return cmp.Or(cmp.Compare(b.size, a.size), bytes.Compare(a.key[:], b.key[:])) < 0
}

func (ps portions) Swap(i, j int) {
	ps[i], ps[j] = ps[j], ps[i]
	ps[i].spot, ps[j].spot = i, j
}

// Push and Pop implement [heap.Interface].
func (ps *portions) Push(x any) {
	p := x.(*portion)
	p.spot = len(*ps)
	*ps = append(*ps, p)
}

func (ps *portions) Pop() any {
	old := *ps
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*ps = old[:len(old)-1]
	return p
}
