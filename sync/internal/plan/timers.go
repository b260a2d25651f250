package plan

import (
	"container/heap"
	"time"
)

// timers wakes relays. A relay has at most one timer.
type timers struct{ heap timerHeap }

// set wakes r at this time and at no other; the zero time: at none.
func (t *timers) set(r *relay, at time.Time) {
	switch {
	case at.IsZero() && r.wakeIndex > 0:
		heap.Remove(&t.heap, r.wakeIndex-1)
	case at.IsZero():
	case r.wakeIndex > 0:
		r.wakeAt = at
		heap.Fix(&t.heap, r.wakeIndex-1)
	default:
		r.wakeAt = at
		heap.Push(&t.heap, r)
	}
}

// due returns one of the relays whose time has come, and disarms it; nil: there is none.
func (t *timers) due(now time.Time) *relay {
	if len(t.heap) == 0 || t.heap[0].wakeAt.After(now) {
		return nil
	}
	return heap.Pop(&t.heap).(*relay)
}

// next returns the time of the earliest timer.
func (t *timers) next() (time.Time, bool) {
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].wakeAt, true
}

// timerHeap has the relays with a timer. Each knows its place.
type timerHeap []*relay

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].wakeAt.Before(h[j].wakeAt) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].wakeIndex, h[j].wakeIndex = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	r := x.(*relay)
	*h = append(*h, r)
	r.wakeIndex = len(*h)
}

func (h *timerHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	r.wakeIndex = 0
	return r
}
