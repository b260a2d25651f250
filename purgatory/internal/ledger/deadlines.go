package ledger

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/graspsync/graspsync"
)

// deadlines orders ids by time. What has changed since it was added stays in it
// until it comes first, or until it is cleaned.
type deadlines struct{ heap deadlineHeap }

type deadline struct {
	at time.Time
	id graspsync.EventID
}

// Len is how many there are, past ones included.
func (d *deadlines) Len() int { return len(d.heap) }

func (d *deadlines) add(at time.Time, id graspsync.EventID) { heap.Push(&d.heap, deadline{at, id}) }

func (d *deadlines) pop() graspsync.EventID { return heap.Pop(&d.heap).(deadline).id }

// first returns the earliest time that still holds.
func (d *deadlines) first(holds func(time.Time, graspsync.EventID) bool) (time.Time, bool) {
	for len(d.heap) > 0 {
		if f := d.heap[0]; holds(f.at, f.id) {
			return f.at, true
		}
		d.pop()
	}
	return time.Time{}, false
}

// clean drops what does not hold any more.
func (d *deadlines) clean(holds func(time.Time, graspsync.EventID) bool) {
	kept := d.heap[:0]
	for _, x := range d.heap {
		if holds(x.at, x.id) {
			kept = append(kept, x)
		}
	}
	d.heap = kept
	heap.Init(&d.heap)
}

type deadlineHeap []deadline

func (h deadlineHeap) Len() int { return len(h) }
func (h deadlineHeap) Less(i, j int) bool {
	return cmp.Or(h[i].at.Compare(h[j].at), h[i].id.Compare(h[j].id)) < 0
}
func (h deadlineHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *deadlineHeap) Push(x any)   { *h = append(*h, x.(deadline)) }

func (h *deadlineHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
