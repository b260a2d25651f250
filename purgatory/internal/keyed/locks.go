package keyed

import (
	"context"
	"fmt"
)

// Locks are locks by key. A waiting caller gives up when its context ends. Locks are safe for
// concurrent use.
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
