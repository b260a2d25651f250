package plan

import (
	"container/heap"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

// core is embedded by all parts of a plan.
type core struct {
	cfg     Config
	now     time.Time
	rng     *rand.Rand
	timers  timers
	dirty   []*relayState
	effects []Effect
}

func (c *core) emit(e Effect) { c.effects = append(c.effects, e) }

// markDirty schedules [Plan.advance] at the end of the step.
func (c *core) markDirty(r *relayState) {
	if !r.dirty {
		r.dirty = true
		c.dirty = append(c.dirty, r)
	}
}

// longer adds a random part of up to 1/10, so that servers do not reconnect simultaneously.
func (c *core) longer(d time.Duration) time.Duration {
	return d + time.Duration(c.rng.Int64N(int64(d)/10+1))
}

func (c *core) retryAfter(failures int) time.Duration {
	return c.longer(backoff.Doubled(c.cfg.RetryBase, c.cfg.RetryMax, failures))
}

func without[K comparable, V any](m map[K]V, named map[K]struct{}) map[K]struct{} {
	out := make(map[K]struct{})
	for k := range m {
		if _, ok := named[k]; !ok {
			out[k] = struct{}{}
		}
	}
	return out
}

// sortedBy returns the keys in order, so that effects do not depend on the order of a map.
func sortedBy[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}

func put(m *map[Item]struct{}, it Item) {
	if *m == nil {
		*m = make(map[Item]struct{})
	}
	(*m)[it] = struct{}{}
}

func drop(m *map[Item]struct{}, it Item) {
	if delete(*m, it); len(*m) == 0 {
		*m = nil
	}
}

func has(m map[Item]struct{}, it Item) bool {
	_, ok := m[it]
	return ok
}

type timers struct{ heap timerHeap }

type timerState struct {
	at    time.Time
	index int // position in the heap, from 1; 0: no timer
}

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
