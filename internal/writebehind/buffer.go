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
)

const (
	batchBytes = 8 << 20     // bytes of values per batch
	retryPause = time.Minute // after a failed write, because a full or broken disk takes time to repair
)

// Config configures a [Buffer]. All fields are required.
type Config struct {
	Delay    time.Duration // from a change to its write, which includes all later changes
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

// Buffer writes changes in the background, as the only writer of its keys. It is safe for
// concurrent use.
type Buffer struct {
	// set by New, read-only
	store   state.Store
	cfg     Config
	seed    maphash.Seed
	writing chan struct{}     // one slot, held during a write
	wake    chan struct{}     // one slot, filled by each queued change
	sums    map[string]uint64 // of values known to be in the store; owned by the holder of writing

	mu    sync.Mutex
	queue map[string]Value // not written; guarded by mu
}

// New returns a Buffer over store.
func New(store state.Store, cfg Config) *Buffer {
	return &Buffer{
		store: store, cfg: cfg, seed: maphash.MakeSeed(), writing: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		queue: make(map[string]Value), sums: make(map[string]uint64),
	}
}

// Load calls f for all records with a prefix, before Run.
func (b *Buffer) Load(ctx context.Context, prefix string, f func(key string, value []byte)) error {
	for r, err := range b.store.Each(ctx, prefix) {
		if err != nil {
			return fmt.Errorf("loading records: %w", err)
		}
		b.sums[r.Key] = maphash.Bytes(b.seed, r.Value)
		f(r.Key, r.Value)
	}
	return nil
}

// Put queues a change, instead of an earlier change of the key. It returns false if the queue is full.
func (b *Buffer) Put(key string, value Value) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enqueue(key, value)
}

// enqueue is Put with mu held.
func (b *Buffer) enqueue(key string, value Value) bool {
	if _, queued := b.queue[key]; !queued && len(b.queue) >= b.cfg.MaxQueue {
		b.cfg.Dropped("queue", 1)
		return false
	}
	b.queue[key] = value
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// Save writes changes and the queued ones immediately, and returns when they are durable. The error
// is one of changes, which are written again later.
func (b *Buffer) Save(ctx context.Context, changes ...Change) (err error) {
	for _, c := range changes {
		if !b.Put(c.Key, c.Value) {
			err = ErrFull
		}
	}
	failed, unwritten := b.write(ctx)
	err = cmp.Or(err, unwritten)
	for _, c := range changes {
		err = cmp.Or(err, failed[c.Key])
	}
	return err
}

// Flush writes all queued changes, and returns when they are durable.
func (b *Buffer) Flush(ctx context.Context) error {
	failed, err := b.write(ctx)
	for key, one := range failed {
		err = fmt.Errorf("%s: %w", key, one)
	}
	return err
}

// Run writes changes until ctx ends. Call Flush before, because queued changes are then lost.
func (b *Buffer) Run(ctx context.Context) {
	for {
		select {
		case <-b.wake:
		case <-ctx.Done():
			return
		}
		for wait := b.cfg.Delay; wait > 0; {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			wait = 0
			if err := b.Flush(ctx); err != nil && ctx.Err() == nil {
				b.cfg.Logger.Error("saving persistent state failed", "error", graspsync.Printable(err.Error()))
				wait = retryPause
			}
		}
	}
}

// write writes the queue, after a write that is going on. failed are the errors by key. err is the
// reason why nothing was tried.
func (b *Buffer) write(ctx context.Context) (failed map[string]error, err error) {
	select {
	case b.writing <- struct{}{}:
		defer func() { <-b.writing }()
	case <-ctx.Done():
		return nil, fmt.Errorf("saving records: %w", context.Cause(ctx))
	}
	b.mu.Lock()
	queue := b.queue
	b.queue = make(map[string]Value)
	b.mu.Unlock()
	failed = make(map[string]error)
	var puts []state.Record
	var deletes []string
	size := 0
	for key, read := range queue {
		value, keep := read()
		sum, stored := b.sums[key]
		switch {
		case !keep:
			deletes = append(deletes, key)
		case len(value) > b.cfg.MaxValue:
			b.cfg.Dropped("size", 1)
			failed[key] = fmt.Errorf("%w: %d bytes", ErrTooLong, len(value))
			delete(b.sums, key)
			delete(queue, key) // it is not retried
		case !stored || sum != maphash.Bytes(b.seed, value):
			puts = append(puts, state.Record{Key: key, Value: value})
			if size += len(value); size >= batchBytes {
				b.put(ctx, puts, failed)
				puts, size = nil, 0
			}
		}
	}
	b.delete(ctx, deletes, failed) // before the last values, to make room
	b.put(ctx, puts, failed)
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range failed {
		if read := queue[key]; read != nil && b.queue[key] == nil {
			b.enqueue(key, read)
		}
	}
	return failed, nil
}

func (b *Buffer) delete(ctx context.Context, keys []string, failed map[string]error) {
	if len(keys) == 0 {
		return
	}
	err := b.call(ctx, func(ctx context.Context) error { return b.store.Delete(ctx, keys...) })
	for _, key := range keys {
		delete(b.sums, key)
		if err != nil {
			failed[key] = err
		}
	}
}

// put writes records, one by one if the store refuses them together.
func (b *Buffer) put(ctx context.Context, records []state.Record, failed map[string]error) {
	if len(records) == 0 {
		return
	}
	err := b.call(ctx, func(ctx context.Context) error { return b.store.Put(ctx, records...) })
	if len(records) > 1 && (errors.Is(err, state.ErrFull) || errors.Is(err, state.ErrKey)) {
		for i := range records {
			b.put(ctx, records[i:i+1], failed)
		}
		return
	}
	for _, r := range records {
		if err != nil {
			failed[r.Key] = err
			delete(b.sums, r.Key) // the store may contain either value
		} else {
			b.sums[r.Key] = maphash.Bytes(b.seed, r.Value)
		}
	}
}

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
