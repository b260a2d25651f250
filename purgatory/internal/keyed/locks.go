package keyed

import (
	"context"
	"fmt"
)

// Locks are locks by key. Who waits for one stops waiting when its context ends. They are
// made by [NewLocks] and may be used concurrently.
type Locks[K comparable] struct {
	slots *Shared[K, chan struct{}] // with one slot, which is taken by who has the lock
}

// NewLocks returns locks that nobody has.
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

// TryLock is Lock for who does not wait.
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

// LockUnused is TryLock, unless somebody uses what the lock is of, or waits for it.
func (l *Locks[K]) LockUnused(k K) (unlock func(), ok bool) {
	slot, done, ok := l.slots.UseFirst(k, func(slot chan struct{}) { slot <- struct{}{} })
	if !ok {
		return nil, false
	}
	return func() {
		<-slot
		done()
	}, true
}

// Use keeps others from [Locks.LockUnused], and from no other lock, until done is called, once.
func (l *Locks[K]) Use(k K) (done func()) {
	_, done = l.slots.Use(k)
	return done
}

// Len is how many keys somebody has the lock of, waits for it, or uses.
func (l *Locks[K]) Len() int { return l.slots.Len() }
