package writebehind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/state"
)

// Errors of Save and Flush.
var (
	ErrFull    = errors.New("too many unsaved changes")
	ErrTooLong = errors.New("value is too long")
	ErrEnded   = errors.New("the writer has ended")
)

const (
	batchBytes = 8 << 20          // bytes of values per batch
	retryPause = 10 * time.Second // after a failed write, because a full or broken disk takes time to repair
	logPause   = time.Minute      // between log lines about a failing store
)

// Config configures a [Buffer]. All fields are required.
type Config struct {
	Delay    time.Duration // from the first Put to the write
	Timeout  time.Duration // of each write
	MaxValue int           // maximum length of a value, in bytes; longer values are dropped
	MaxQueue int           // maximum number of keys with waiting changes; more are dropped
	Logger   *slog.Logger  // receives failed writes
	// Dropped is called with the number of dropped changes, by reason "queue" (full) or "size" (of
	// the value). It must not block.
	Dropped func(reason string, n int)
}

// Value returns the value of a key when it is written, or false to delete the record. It may be
// called several times.
type Value func() (value []byte, keep bool)

// Change is a new value of a key.
type Change struct {
	Key   string
	Value Value
}

// Buffer writes changes in the background, as the only writer of its keys. It is safe for concurrent
// use. [New] makes one.
type Buffer struct {
	// set by New, read-only
	store state.Store
	cfg   Config
	seed  maphash.Seed
	wake  chan struct{} // one slot: urgent keys exist, or due is earlier
	ended chan struct{} // closed when Run returned

	mu sync.Mutex
	// guarded by mu
	queue    map[string]*change
	writing  map[string]*change // taken from queue, not yet written
	urgent   []string           // keys in queue with waiters
	due      time.Time          // time to write the queue; zero if it is empty or all keys are urgent
	sums     map[string]uint64  // of values known to be in the store
	loggedAt time.Time
}

type change struct {
	value   Value
	waiters []*waiter
}

type waiter struct {
	done chan struct{} // closed when left is 0
	// guarded by Buffer.mu
	left int   // number of unwritten changes
	err  error // the first error
}

// New returns a Buffer over store.
func New(store state.Store, cfg Config) *Buffer {
	return &Buffer{
		store: store, cfg: cfg, seed: maphash.MakeSeed(), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		queue: make(map[string]*change), writing: make(map[string]*change), sums: make(map[string]uint64),
	}
}

// Load calls f for all records with a prefix, before Run.
func (b *Buffer) Load(ctx context.Context, prefix string, f func(key string, value []byte)) error {
	for r, err := range b.store.Each(ctx, prefix) {
		if err != nil {
			return fmt.Errorf("loading records: %w", err)
		}
		b.setSum(r)
		f(r.Key, r.Value)
	}
	return nil
}

// Put queues a change, instead of an earlier change of the key. It returns false if the queue is full.
func (b *Buffer) Put(key string, value Value) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.enqueue(key, value) {
		return false
	}
	if len(b.queue[key].waiters) == 0 {
		b.dueIn(b.cfg.Delay)
	}
	return true
}

// Save writes changes immediately and returns when they are durable. A failed change is retried.
func (b *Buffer) Save(ctx context.Context, changes ...Change) error {
	w := &waiter{done: make(chan struct{})}
	b.mu.Lock()
	for _, c := range changes {
		if b.enqueue(c.Key, c.Value) {
			b.wait(w, c.Key)
		} else {
			w.err = ErrFull
		}
	}
	b.mu.Unlock()
	return b.await(ctx, w)
}

// Flush writes all queued changes, and returns when they are durable.
func (b *Buffer) Flush(ctx context.Context) error {
	w := &waiter{done: make(chan struct{})}
	b.mu.Lock()
	for key := range b.queue {
		b.wait(w, key)
	}
	for key, c := range b.writing {
		if b.queue[key] == nil { // otherwise the later change is written after this change
			c.waiters = append(c.waiters, w)
			w.left++
		}
	}
	b.mu.Unlock()
	return b.await(ctx, w)
}

// enqueue returns false if the queue is full. The caller holds mu.
func (b *Buffer) enqueue(key string, value Value) bool {
	c := b.queue[key]
	if c == nil {
		if len(b.queue) >= b.cfg.MaxQueue {
			b.cfg.Dropped("queue", 1)
			return false
		}
		c = &change{}
		b.queue[key] = c
	}
	c.value = value
	return true
}

// wait makes w wait for the queued change of a key. The caller holds mu.
func (b *Buffer) wait(w *waiter, key string) {
	c := b.queue[key]
	if len(c.waiters) == 0 {
		b.urgent = append(b.urgent, key)
	}
	c.waiters = append(c.waiters, w)
	w.left++
	b.signal()
}

// dueIn makes the queue due within d. The caller holds mu.
func (b *Buffer) dueIn(d time.Duration) {
	if at := time.Now().Add(d); b.due.IsZero() || at.Before(b.due) {
		b.due = at
		b.signal()
	}
}

func (b *Buffer) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *Buffer) await(ctx context.Context, w *waiter) error {
	result := func() (left int, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return w.left, w.err
	}
	if left, err := result(); left == 0 {
		return err
	}
	select {
	case <-w.done:
	case <-b.ended:
	case <-ctx.Done():
		return fmt.Errorf("saving records: %w", context.Cause(ctx))
	}
	if left, err := result(); left == 0 { // the writer may have ended after the last change
		return err
	}
	return ErrEnded
}

// Run writes changes until ctx ends, once. Call Flush before, because queued changes are then lost.
func (b *Buffer) Run(ctx context.Context) {
	defer close(b.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		group, due := b.take(time.Now())
		if len(group) > 0 {
			b.write(ctx, group)
			continue
		}
		timer.Stop()
		if !due.IsZero() {
			timer.Reset(time.Until(due))
		}
		select {
		case <-b.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// take returns the whole queue if it is due, else the urgent changes. due is the time of the next
// call.
func (b *Buffer) take(now time.Time) (group map[string]*change, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.due.IsZero() && !b.due.After(now) {
		group, b.queue, b.due = b.queue, make(map[string]*change), time.Time{}
	} else {
		group = make(map[string]*change, len(b.urgent))
		for _, key := range b.urgent {
			group[key] = b.queue[key]
			delete(b.queue, key)
		}
	}
	b.urgent, b.writing = nil, group
	return group, b.due
}

// write deletes first to make room, and skips values that the store already contains.
func (b *Buffer) write(ctx context.Context, group map[string]*change) {
	var puts []state.Record
	var deletes []string
	size := 0
	put := func() {
		b.put(ctx, puts)
		puts, size = nil, 0
	}
	for key, c := range group {
		value, keep := c.value()
		switch {
		case !keep:
			b.mu.Lock()
			delete(b.sums, key)
			b.mu.Unlock()
			deletes = append(deletes, key)
		case len(value) > b.cfg.MaxValue:
			b.cfg.Dropped("size", 1)
			b.settle(ctx, key, fmt.Errorf("%w: %d bytes", ErrTooLong, len(value)))
		case b.stored(key, value):
			b.settle(ctx, key, nil)
		default:
			puts = append(puts, state.Record{Key: key, Value: value})
			if size += len(value); size >= batchBytes {
				put()
			}
		}
	}
	if len(deletes) > 0 {
		err := b.call(ctx, func(ctx context.Context) error { return b.store.Delete(ctx, deletes...) })
		for _, key := range deletes {
			b.settle(ctx, key, err)
		}
	}
	put()
}

func (b *Buffer) setSum(r state.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sums[r.Key] = maphash.Bytes(b.seed, r.Value)
}

func (b *Buffer) stored(key string, value []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum, ok := b.sums[key]
	return ok && sum == maphash.Bytes(b.seed, value)
}

func (b *Buffer) put(ctx context.Context, records []state.Record) {
	if len(records) == 0 {
		return
	}
	err := b.call(ctx, func(ctx context.Context) error { return b.store.Put(ctx, records...) })
	if len(records) > 1 && (errors.Is(err, state.ErrFull) || errors.Is(err, state.ErrKey)) {
		for i := range records {
			b.put(ctx, records[i:i+1])
		}
		return
	}
	for _, r := range records {
		if err == nil {
			b.setSum(r)
		}
		b.settle(ctx, r.Key, err)
	}
}

// call calls the store and converts a panic to an error.
func (b *Buffer) call(ctx context.Context, f func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("writing: panic: %v", p)
		}
	}()
	if err := f(ctx); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// settle ends the write of a key. A failed change is queued again, unless a later one is.
func (b *Buffer) settle(ctx context.Context, key string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.writing[key]
	delete(b.writing, key)
	for _, w := range c.waiters {
		w.err = cmp.Or(w.err, err)
		if w.left--; w.left == 0 {
			close(w.done)
		}
	}
	if err == nil {
		return
	}
	delete(b.sums, key) // the store may contain either value
	if errors.Is(err, ErrTooLong) {
		return
	}
	if b.queue[key] == nil {
		b.queue[key] = &change{value: c.value}
		b.dueIn(retryPause)
	}
	if now := time.Now(); ctx.Err() == nil && now.Sub(b.loggedAt) >= logPause {
		b.loggedAt = now
		b.cfg.Logger.Error("saving persistent state failed", "key", key, "error", graspsync.Printable(err.Error()))
	}
}
