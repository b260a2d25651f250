package plan

import (
	"container/heap"
	"time"
)

// timers wakes relays. A relay has at most one timer.
type timers struct{ heap timerHeap }

type timerState struct {
	at    time.Time
	index int // its position in the heap, from 1; 0: no timer
}

// set sets the timer of r. A zero time clears it.
func (t *timers) set(r *relayState, at time.Time) {
	switch {
	case at.IsZero() && r.timer.index > 0:
		heap.Remove(&t.heap, r.timer.index-1)
	case at.IsZero():
	case r.timer.index > 0:
		r.timer.at = at
		heap.Fix(&t.heap, r.timer.index-1)
	default:
		r.timer.at = at
		heap.Push(&t.heap, r)
	}
}

// due clears a timer that has fired and returns its relay, or nil.
func (t *timers) due(now time.Time) *relayState {
	if len(t.heap) == 0 || t.heap[0].timer.at.After(now) {
		return nil
	}
	return heap.Pop(&t.heap).(*relayState)
}

func (t *timers) next() (time.Time, bool) {
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].timer.at, true
}

type timerHeap []*relayState

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool { return h[i].timer.at.Before(h[j].timer.at) }

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].timer.index, h[j].timer.index = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	r := x.(*relayState)
	*h = append(*h, r)
	r.timer.index = len(*h)
}

func (h *timerHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	r.timer.index = 0
	return r
}
