// Package keyed provides locks and values by key. Nothing is stored for a key that is not in use.
package keyed

import (
	"context"
	"fmt"
	"sync"
)

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

// Locks are locks by key. A waiting caller gives up when its context ends.
type Locks[K comparable] struct {
	slots *Shared[K, chan struct{}] // one slot, filled while the lock is held
}

// NewLocks returns locks that are all free.
func NewLocks[K comparable]() *Locks[K] {
	return &Locks[K]{NewShared[K](func() chan struct{} { return make(chan struct{}, 1) })}
}

// Lock takes the lock of a key. unlock must be called once.
func (l *Locks[K]) Lock(ctx context.Context, k K) (unlock func(), err error) {
	slot, done := l.slots.Use(k)
	select {
	case slot <- struct{}{}:
		return func() {
			<-slot
			done()
		}, nil
	case <-ctx.Done():
		done()
		return nil, fmt.Errorf("waiting for a lock: %w", context.Cause(ctx))
	}
}

// TryLock is Lock without a wait.
func (l *Locks[K]) TryLock(k K) (unlock func(), ok bool) {
	slot, done := l.slots.Use(k)
	select {
	case slot <- struct{}{}:
		return func() {
			<-slot
			done()
		}, true
	default:
		done()
		return nil, false
	}
}

// Len returns the number of keys that are locked or waited for.
func (l *Locks[K]) Len() int { return l.slots.Len() }
