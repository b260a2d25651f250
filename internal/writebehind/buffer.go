package writebehind

import (
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

// Errors of what waits for something to be durable.
var (
	ErrFull    = errors.New("too many changes wait to be written")
	ErrTooLong = errors.New("value is too long")
	ErrEnded   = errors.New("nobody writes any more")
)

const (
	atOnce     = 64               // calls of the store under way: it can make them share a sync
	groupSize  = 256              // changes written before it is looked again which are urgent
	retryPause = 10 * time.Second // after a failure: a disk that is full or broken is not mended sooner
	sayPause   = time.Minute      // between two lines about a store that fails
)

// Config holds the bounds and times of a [Buffer]. All of it is set.
type Config struct {
	Delay    time.Duration // how long changes are gathered that nobody waits for
	Timeout  time.Duration // bounds each write
	MaxValue int           // the longest value, in bytes; longer ones are dropped
	MaxQueue int           // the keys whose changes wait; more are dropped
	// RetryFull has what the store has no room for written again like all else that fails;
	// otherwise it is dropped. It is for those who are not told again what has changed.
	RetryFull bool
	Logger    *slog.Logger // gets what fails
	// Dropped counts what was dropped, because of the "queue", the "size" of a value or a store
	// that was "full". Must not block.
	Dropped func(reason string, n int)
}

// Value makes what is written under a key, when it is written; with keep false the key is to
// have no value. It may be called several times, and concurrently with those of other keys.
type Value func() (value []byte, keep bool)

// Change is what is to be written under a key.
type Change struct {
	Key   string
	Value Value
}

// Buffer writes behind. Its keys are written by nobody else. Its methods may be called
// concurrently. Make one with [New].
type Buffer struct {
	// set by New, read-only
	store state.Store
	cfg   Config
	seed  maphash.Seed
	wake  chan struct{} // one slot
	ended chan struct{} // closed when Run has returned

	mu sync.Mutex
	// guarded by mu
	queue    map[string]*change
	writing  map[string]*change  // taken from queue, and not yet written
	urgent   []string            // keys in queue that somebody waits for
	lazy     map[string]struct{} // and those that nobody waits for
	lazyAt   time.Time           // when these are due, zero: there is none
	putOff   []putOff            // and those that failed, the first to be due in front
	written  map[string]written  // what the store has
	loggedAt time.Time
}

// change is one that waits.
type change struct {
	make    Value
	waiters []chan error
	again   time.Time // when it is due once more, zero: it has not failed
}

// putOff is a change that is due once more.
type putOff struct {
	key   string
	again time.Time
}

// task is a change that is to be written now.
type task struct {
	key string
	*change
}

// written is what the store has under a key.
type written struct {
	version state.Version
	sum     uint64
	unsure  bool // nobody knows: the last change of it failed
}

// New returns a Buffer over store.
func New(store state.Store, cfg Config) *Buffer {
	return &Buffer{
		store: store, cfg: cfg, seed: maphash.MakeSeed(),
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
		queue:   make(map[string]*change),
		writing: make(map[string]*change),
		lazy:    make(map[string]struct{}),
		written: make(map[string]written),
	}
}

// Load calls f for everything that the store has under a prefix, and notes it, before Run. f
// says whether it has left it there.
func (b *Buffer) Load(ctx context.Context, prefix string, f func(key string, value []byte) (there bool, err error)) error {
	for key, err := range b.store.Keys(ctx, prefix) {
		if err != nil {
			return fmt.Errorf("reading what was kept: %w", err)
		}
		value, version, err := b.store.Get(ctx, key)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading what was kept: %w", err)
		}
		sum := maphash.Bytes(b.seed, value)
		there, err := f(key, value)
		if err != nil {
			return err
		}
		if there {
			b.mu.Lock()
			b.written[key] = written{version: version, sum: sum}
			b.mu.Unlock()
		}
	}
	return nil
}

// Put has a change written soon, in place of an earlier one of its key. It never blocks, and
// reports whether there was room.
func (b *Buffer) Put(key string, value Value) bool { return b.enqueue(key, value, nil) }

// Save returns when changes are durable, as they are now or later; the error says that one may
// not be. Those that are saved at the same time are written together. What could not be
// written is written later, as after Put.
func (b *Buffer) Save(ctx context.Context, changes ...Change) error {
	done := make([]chan error, len(changes))
	for i, c := range changes {
		done[i] = make(chan error, 1)
		b.enqueue(c.Key, c.Value, done[i])
	}
	return b.awaitAll(ctx, done)
}

// Flush returns when everything that was put before is durable; the error says what is not.
func (b *Buffer) Flush(ctx context.Context) error {
	b.mu.Lock()
	done := make([]chan error, 0, len(b.queue)+len(b.writing))
	wait := func(c *change) {
		d := make(chan error, 1)
		c.waiters = append(c.waiters, d)
		done = append(done, d)
	}
	for key, c := range b.queue {
		if len(c.waiters) == 0 {
			b.urgent = append(b.urgent, key)
		}
		wait(c)
	}
	for key, c := range b.writing {
		if b.queue[key] == nil { // else that is written after it
			wait(c)
		}
	}
	b.signal()
	b.mu.Unlock()
	return b.awaitAll(ctx, done)
}

// enqueue queues a change, for somebody who waits for it unless done is nil. It reports
// whether there was room.
func (b *Buffer) enqueue(key string, value Value, done chan error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.queue[key]
	if c == nil {
		if len(b.queue) >= b.cfg.MaxQueue {
			b.cfg.Dropped("queue", 1)
			if done != nil {
				done <- ErrFull
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
	case len(c.waiters) == 0 && c.again.IsZero():
		if b.due(key, time.Now().Add(b.cfg.Delay)) {
			b.signal()
		}
	}
	return true
}

// due makes a change one that nobody waits for; all of these are due when the first of them
// is. It reports whether that is earlier now. b.mu is held.
func (b *Buffer) due(key string, at time.Time) (earlier bool) {
	b.lazy[key] = struct{}{}
	if earlier = b.lazyAt.IsZero() || at.Before(b.lazyAt); earlier {
		b.lazyAt = at
	}
	return earlier
}

func (b *Buffer) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// await waits until a change was written.
func (b *Buffer) await(ctx context.Context, done <-chan error) error {
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
		return ErrEnded
	}
}

// awaitAll waits until changes were written, and returns the first error of them.
func (b *Buffer) awaitAll(ctx context.Context, done []chan error) error {
	var first error
	for _, d := range done {
		if err := b.await(ctx, d); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Run writes until ctx ends. What is queued then is not written: call Flush before. It is
// called once.
func (b *Buffer) Run(ctx context.Context) {
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

// take returns what is to be written now: first what somebody waits for, and of the rest as
// much beside it as is written at once, so that it has its turn however much is waited for. due
// is when there will be more, if nothing is to be written.
func (b *Buffer) take(now time.Time) (group []task, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	move := func(key string) {
		delete(b.lazy, key)
		if c := b.queue[key]; c != nil {
			group = append(group, task{key, c})
			b.writing[key] = c
			delete(b.queue, key)
		}
	}
	for len(b.putOff) > 0 && !b.putOff[0].again.After(now) {
		p := b.putOff[0]
		b.putOff = b.putOff[1:]
		if c := b.queue[p.key]; c != nil && c.again.Equal(p.again) {
			b.due(p.key, now)
		}
	}
	for len(b.urgent) > 0 && len(group) < groupSize {
		move(b.urgent[0])
		b.urgent = b.urgent[1:]
	}
	if !b.lazyAt.IsZero() && !b.lazyAt.After(now) {
		most := groupSize
		if len(group) > 0 {
			most = len(group) + atOnce
		}
		for key := range b.lazy {
			if move(key); len(group) >= most {
				break
			}
		}
	}
	if len(b.lazy) == 0 {
		b.lazyAt = time.Time{}
	}
	due = b.lazyAt
	if len(b.putOff) > 0 && (due.IsZero() || b.putOff[0].again.Before(due)) {
		due = b.putOff[0].again
	}
	return group, due
}

// write writes changes, several at once, and tells who waits.
func (b *Buffer) write(ctx context.Context, group []task) {
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, t := range group {
		slots <- struct{}{}
		wg.Go(func() {
			err := b.save(ctx, t.key, t.change)
			if err != nil {
				b.failed(ctx, t, err)
			}
			b.mu.Lock()
			delete(b.writing, t.key)
			b.mu.Unlock()
			for _, done := range t.waiters { // nobody comes to wait any more
				done <- err
			}
			<-slots
		})
	}
	wg.Wait()
}

// failed has a change written again later, if that can help.
func (b *Buffer) failed(ctx context.Context, t task, err error) {
	again := b.cfg.RetryFull || !errors.Is(err, state.ErrFull)
	switch {
	case errors.Is(err, ErrTooLong):
		b.cfg.Dropped("size", 1)
		return
	case !again:
		b.cfg.Dropped("full", 1)
	}
	if b.later(t, again) && ctx.Err() == nil {
		b.cfg.Logger.Error("what is to survive a restart could not be written", "key", t.key, "error", graspsync.Printable(err.Error()))
	}
}

// later queues a change that failed once more, unless a later one of its key waits, and
// reports whether that may be said.
func (b *Buffer) later(t task, again bool) (say bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.queue[t.key] == nil && again {
		at := now.Add(retryPause)
		b.queue[t.key] = &change{make: t.make, again: at}
		b.putOff = append(b.putOff, putOff{t.key, at})
	}
	if say = now.Sub(b.loggedAt) >= sayPause; say {
		b.loggedAt = now
	}
	return say
}

// save makes one change durable. Should somebody else write under our keys, the last wins.
func (b *Buffer) save(ctx context.Context, key string, c *change) (err error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil { // of the store: it may have written before
			b.mu.Lock()
			defer b.mu.Unlock()
			b.written[key] = written{unsure: true}
			err = fmt.Errorf("writing: panic: %v", p)
		}
	}()
	value, keep := c.make()
	if len(value) > b.cfg.MaxValue {
		return fmt.Errorf("%w: %d bytes", ErrTooLong, len(value))
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

func (b *Buffer) swap(ctx context.Context, key string, old state.Version, value []byte, keep bool) (state.Version, error) {
	if keep {
		return b.store.CompareAndSwap(ctx, key, old, value)
	}
	if old == state.Absent {
		return state.Absent, state.ErrNotFound
	}
	return state.Absent, b.store.Delete(ctx, key, old)
}
