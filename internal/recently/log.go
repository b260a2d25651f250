// Package recently remembers the newest of what happened, for people who ask why: of each kind so
// many, however many there were, and how many that is.
package recently

import (
	"maps"
	"slices"
	"sync"
)

// Log remembers what happened. Make one with [New]. It is safe for concurrent use. To add to it
// costs a copy and, but for the first of each kind, no memory.
type Log[K comparable, V any] struct {
	most, kinds int

	mu sync.Mutex
	// guarded by mu
	of        map[K]*ring[V]
	counts    map[K]uint64
	forgotten bool // something is remembered no more
}

// ring has the newest of one kind.
type ring[V any] struct {
	items []V
	next  int // place of the oldest, once it is full
}

// New returns a log that has the newest most of each of at most so many kinds. What is of no
// kind that there is room for is of the zero kind.
func New[K comparable, V any](most, kinds int) *Log[K, V] {
	return &Log[K, V]{most: most, kinds: kinds, of: make(map[K]*ring[V]), counts: make(map[K]uint64)}
}

// Add remembers one more.
func (l *Log[K, V]) Add(k K, v V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.of[k]
	if r == nil && len(l.of) >= l.kinds {
		var other K
		k, r = other, l.of[other]
	}
	if r == nil {
		r = &ring[V]{}
		l.of[k] = r
	}
	l.counts[k]++
	if len(r.items) < l.most {
		r.items = append(r.items, v)
		return
	}
	l.forgotten = true
	r.items[r.next] = v
	r.next = (r.next + 1) % l.most
}

// Each calls do with all that is remembered, the newest of each kind first. No lock is held
// meanwhile: what is added may be met or not.
func (l *Log[K, V]) Each(do func(k K, v V)) {
	l.mu.Lock()
	kinds := slices.Collect(maps.Keys(l.of))
	l.mu.Unlock()
	var items []V
	for _, k := range kinds {
		var next int
		items, next = l.copied(items[:0], k)
		for i := range items {
			do(k, items[(next+2*len(items)-1-i)%len(items)])
		}
	}
}

// copied appends what is remembered of one kind, and returns the place of the oldest.
func (l *Log[K, V]) copied(to []V, k K) (items []V, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.of[k]
	return append(to, r.items...), r.next
}

// Complete reports whether all that was ever added is remembered.
func (l *Log[K, V]) Complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.forgotten
}

// Counts returns how many there were of each kind.
func (l *Log[K, V]) Counts() map[K]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}
