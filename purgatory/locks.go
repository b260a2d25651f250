package purgatory

import (
	"context"
	"fmt"
	"sync"
)

// locks are locks with names. Who waits for one stops waiting when its context ends.
type locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*turn // guarded by mu
}

// turn is one lock, as long as somebody has it or waits for it.
type turn struct {
	slot  chan struct{} // one slot
	users int           // guarded by locks.mu
}

// lock takes the lock of k. unlock must be called once.
func (l *locks[K]) lock(ctx context.Context, k K) (unlock func(), err error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = make(map[K]*turn)
	}
	t := l.held[k]
	if t == nil {
		t = &turn{slot: make(chan struct{}, 1)}
		l.held[k] = t
	}
	t.users++
	l.mu.Unlock()
	select {
	case t.slot <- struct{}{}:
		return func() {
			<-t.slot
			l.leave(k, t)
		}, nil
	case <-ctx.Done():
		l.leave(k, t)
		return nil, fmt.Errorf("waiting for a lock: %w", context.Cause(ctx))
	}
}

func (l *locks[K]) leave(k K, t *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(l.held, k)
	}
}

// lockAll takes several locks, which must be in the order that everybody takes them
// in, each once.
func (l *locks[K]) lockAll(ctx context.Context, ks []K) (unlock func(), err error) {
	var unlocks []func()
	unlock = func() {
		for _, u := range unlocks {
			u()
		}
	}
	for _, k := range ks {
		u, err := l.lock(ctx, k)
		if err != nil {
			unlock()
			return nil, err
		}
		unlocks = append(unlocks, u)
	}
	return unlock, nil
}
