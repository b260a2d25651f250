// Package heap is a priority queue whose items know their places in it, so that each can
// be moved or taken out at once when it changes.
package heap

import "container/heap"

// Heap is a priority queue. Make one with [New]. It is not safe for concurrent use.
type Heap[T any] struct{ of items[T] }

// New returns an empty heap. less orders it, moved is told of an item's place whenever
// it has another one, and of -1 when it has none any more.
func New[T any](less func(a, b T) bool, moved func(x T, at int)) *Heap[T] {
	return &Heap[T]{items[T]{less: less, moved: moved}}
}

// Len is how many items there are.
func (h *Heap[T]) Len() int { return len(h.of.all) }

// First returns the item that comes before all others; false if there is none.
func (h *Heap[T]) First() (x T, ok bool) {
	if len(h.of.all) == 0 {
		return x, false
	}
	return h.of.all[0], true
}

// Push adds an item.
func (h *Heap[T]) Push(x T) { heap.Push(&h.of, x) }

// Fix moves the item at a place to where it belongs, since it has changed.
func (h *Heap[T]) Fix(at int) { heap.Fix(&h.of, at) }

// Remove takes out the item at a place.
func (h *Heap[T]) Remove(at int) { heap.Remove(&h.of, at) }

// items implements [heap.Interface].
type items[T any] struct {
	all   []T
	less  func(a, b T) bool
	moved func(x T, at int)
}

func (s *items[T]) Len() int           { return len(s.all) }
func (s *items[T]) Less(i, j int) bool { return s.less(s.all[i], s.all[j]) }

func (s *items[T]) Swap(i, j int) {
	s.all[i], s.all[j] = s.all[j], s.all[i]
	s.moved(s.all[i], i)
	s.moved(s.all[j], j)
}

func (s *items[T]) Push(x any) {
	item := x.(T) //nolint:forcetypeassert // what Heap pushes
	s.all = append(s.all, item)
	s.moved(item, len(s.all)-1)
}

func (s *items[T]) Pop() any {
	last := len(s.all) - 1
	item := s.all[last]
	var none T
	s.all[last] = none // nothing is kept alive by it
	s.all = s.all[:last]
	s.moved(item, -1)
	return item
}
