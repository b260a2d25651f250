// Package keyed provides locks and values by key. Nothing is stored for a key that is not in use.
package keyed

import "sync"

// Shared are values by key. They are safe for concurrent use.
type Shared[K comparable, V any] struct {
	// set by NewShared, read-only
	fresh func() V

	mu sync.Mutex
	of map[K]*share[V] // guarded by mu
}

type share[V any] struct {
	value V
	users int // guarded by Shared.mu
}

// NewShared returns values that fresh creates.
func NewShared[K comparable, V any](fresh func() V) *Shared[K, V] {
	return &Shared[K, V]{fresh: fresh, of: make(map[K]*share[V])}
}

// Use returns the value of a key, which all concurrent users share. done must be called once.
func (s *Shared[K, V]) Use(k K) (value V, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.of[k]
	if x == nil {
		x = &share[V]{value: s.fresh()}
		s.of[k] = x
	}
	x.users++
	return x.value, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.users--; x.users == 0 {
			delete(s.of, k)
		}
	}
}

// Len returns the number of keys in use.
func (s *Shared[K, V]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.of)
}
