package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/graspsync/graspsync/state"
)

const (
	atOnce     = 64               // calls of the store under way: it can make them share a sync
	groupSize  = 256              // changes written before the urgent ones are looked at again
	retryPause = 10 * time.Second // after a failure
)

// buffer writes behind: what is put is written a while later, several values at once, and
// what somebody waits for at once. Its methods may be called concurrently.
type buffer struct {
	// set by newBuffer, read-only
	store state.Store // nil: nothing is kept
	cfg   Config
	seed  maphash.Seed
	wake  chan struct{} // one slot
	ended chan struct{} // closed when run has returned

	mu sync.Mutex
	// guarded by mu
	queue    map[string]*change
	urgent   []string           // keys in queue that somebody waits for
	lazyAt   time.Time          // when the others are due
	written  map[string]written // what the store has
	loggedAt time.Time
}

// change is a value to be written.
type change struct {
	make    func() ([]byte, bool) // called when it is written; false: delete it
	waiters []chan error
}

// written is what the store has under a key.
type written struct {
	version state.Version
	sum     uint64
	unsure  bool // nobody knows: the last change of it failed
}

// newBuffer expects defaults to be filled in.
func newBuffer(store state.Store, cfg Config) *buffer {
	return &buffer{
		store: store, cfg: cfg, seed: maphash.MakeSeed(),
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
		queue:   make(map[string]*change),
		written: make(map[string]written),
	}
}

// enqueue queues a change, for somebody who waits for it unless done is nil. It reports
// whether there was room.
func (b *buffer) enqueue(key string, value func() ([]byte, bool), done chan error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.queue[key]
	if c == nil {
		if len(b.queue) >= b.cfg.MaxQueue {
			b.cfg.Dropped("memory_queue", 1)
			if done != nil {
				done <- errFull
			}
			return false
		}
		c = &change{}
		b.queue[key] = c
	}
	c.make = value
	switch {
	case done != nil:
		if len(c.waiters) == 0 {
			b.urgent = append(b.urgent, key)
		}
		c.waiters = append(c.waiters, done)
		b.signal()
	case b.lazyAt.IsZero():
		b.lazyAt = time.Now().Add(b.cfg.Delay)
		b.signal()
	}
	return true
}

func (b *buffer) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// await waits until a change was written.
func (b *buffer) await(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-b.ended:
	case <-ctx.Done():
		return fmt.Errorf("saving: %w", context.Cause(ctx))
	}
	select { // both may have happened
	case err := <-done:
		return err
	default:
		return errEnded
	}
}

// found notes what the store was found to have.
func (b *buffer) found(key string, version state.Version, value []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written[key] = written{version: version, sum: maphash.Bytes(b.seed, value)}
}

// run writes until ctx ends. What is queued then is not written.
func (b *buffer) run(ctx context.Context) {
	defer close(b.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		group, due := b.take(time.Now())
		if len(group) > 0 {
			b.write(ctx, group)
			continue
		}
		var lazy <-chan time.Time
		if !due.IsZero() {
			timer.Reset(time.Until(due))
			lazy = timer.C
		}
		select {
		case <-b.wake:
		case <-lazy:
		case <-ctx.Done():
		}
	}
}

// take returns what is to be written now: first what somebody waits for. due is when
// there will be more.
func (b *buffer) take(now time.Time) (group map[string]*change, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	group = make(map[string]*change)
	move := func(key string) {
		if c := b.queue[key]; c != nil {
			group[key] = c
			delete(b.queue, key)
		}
	}
	for len(b.urgent) > 0 && len(group) < groupSize {
		move(b.urgent[0])
		b.urgent = b.urgent[1:]
	}
	if len(group) > 0 {
		return group, b.lazyAt
	}
	b.urgent = nil
	if b.lazyAt.IsZero() || now.Before(b.lazyAt) {
		return nil, b.lazyAt
	}
	for key := range b.queue {
		if move(key); len(group) >= groupSize {
			break
		}
	}
	if len(b.queue) == 0 {
		b.lazyAt = time.Time{}
	}
	return group, b.lazyAt
}

// write writes changes, several at once, and tells who waits.
func (b *buffer) write(ctx context.Context, group map[string]*change) {
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for key, c := range group {
		slots <- struct{}{}
		wg.Go(func() {
			err := b.save(ctx, key, c)
			if err != nil {
				b.failed(ctx, key, c, err)
			}
			for _, done := range c.waiters {
				done <- err
			}
			<-slots
		})
	}
	wg.Wait()
}

// failed has a change written again later, if that can help.
func (b *buffer) failed(ctx context.Context, key string, c *change, err error) {
	switch {
	case errors.Is(err, errTooLong):
		b.cfg.Dropped("memory_size", 1)
		return
	case errors.Is(err, state.ErrFull):
		b.cfg.Dropped("memory_full", 1)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.queue[key] == nil && !errors.Is(err, state.ErrFull) {
		b.queue[key] = &change{make: c.make}
	}
	if len(b.queue) > 0 {
		b.lazyAt = now.Add(retryPause)
	}
	if ctx.Err() == nil && now.Sub(b.loggedAt) >= time.Minute {
		b.loggedAt = now
		b.cfg.Logger.Error("what is to survive a restart could not be written", "key", key, "error", err)
	}
}

// save makes one change durable. We are the only writer of our keys; should there be
// another one, the last wins.
func (b *buffer) save(ctx context.Context, key string, c *change) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	value, keep := c.make()
	if len(value) > b.cfg.MaxValue {
		return fmt.Errorf("%w: %d bytes", errTooLong, len(value))
	}
	b.mu.Lock()
	has := b.written[key]
	b.mu.Unlock()
	sum := maphash.Bytes(b.seed, value)
	if !has.unsure && (keep && has.version != state.Absent && has.sum == sum || !keep && has.version == state.Absent) {
		return nil
	}
	version, err := b.swap(ctx, key, has.version, value, keep)
	if errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrNotFound) {
		if _, version, err = b.store.Get(ctx, key); err == nil || errors.Is(err, state.ErrNotFound) {
			version, err = b.swap(ctx, key, version, value, keep)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, state.ErrNotFound):
		b.written[key] = written{unsure: true}
		return fmt.Errorf("writing: %w", err)
	case keep:
		b.written[key] = written{version: version, sum: sum}
	default:
		delete(b.written, key)
	}
	return nil
}

func (b *buffer) swap(ctx context.Context, key string, old state.Version, value []byte, keep bool) (state.Version, error) {
	if keep {
		return b.store.CompareAndSwap(ctx, key, old, value)
	}
	if old == state.Absent {
		return state.Absent, state.ErrNotFound
	}
	return state.Absent, b.store.Delete(ctx, key, old)
}

// flush returns when everything that was put before is durable; the error says what is not.
func (b *buffer) flush(ctx context.Context) error {
	b.mu.Lock()
	done := make([]chan error, 0, len(b.queue))
	for key, c := range b.queue {
		if len(c.waiters) == 0 {
			b.urgent = append(b.urgent, key)
		}
		d := make(chan error, 1)
		c.waiters = append(c.waiters, d)
		done = append(done, d)
	}
	b.signal()
	b.mu.Unlock()
	var first error
	for _, d := range done {
		if err := b.await(ctx, d); err != nil && first == nil {
			first = err
		}
	}
	return first
}
