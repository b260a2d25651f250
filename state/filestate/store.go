package filestate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/graspsync/graspsync/state"
)

// Sentinels of this package.
var (
	// ErrLocked is wrapped by what Open returns when another process, or another
	// Store of this one, has the folder. The error names that process.
	ErrLocked = errors.New("the folder is in use by another process")
	// ErrClosed is wrapped by what the methods return after Close.
	ErrClosed = errors.New("the store is closed")
)

// Store is a [state.Store] in a folder. Make one with [Open].
type Store struct {
	config Config    // set by Open, read-only
	lock   io.Closer // of the folder; set by Open, read-only

	wake  chan struct{} // one slot: something is queued, or the end has come
	ended chan struct{} // closed when the writer has ended

	log log // owned by the writer

	mu sync.Mutex
	// guarded by mu; entries is changed by the writer alone
	entries  map[string]entry    // durable
	bytes    int64               // of keys and values in entries
	pending  map[string]*request // by key, queued or being written
	reserved room                // for what is pending
	queue    []*request
	last     state.Version // the newest given out
	closed   bool
	stats    Stats
}

// entry is never changed in place: its value can be handed out for copying after
// the lock was released.
type entry struct {
	value   []byte
	version state.Version
}

// room is how much of the bounds something takes.
type room struct {
	keys  int
	bytes int64
}

// request is a change that waits to be durable.
type request struct {
	record
	room room
	done chan struct{} // closed when err is set
	err  error
}

var _ state.Store = (*Store)(nil)

// Open opens the store in the folder dir, making it if need be. What the log holds
// is used as far as it can be believed; what is damaged is logged and counted in
// Stats and no error. An error is returned if the log can't be read at all, for a
// bad Config, and, wrapping [ErrLocked], if the folder is in use.
func Open(dir string, cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("filestate: Config: %w", err)
	}
	folder, err := openFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("filestate: %w", err)
	}
	lock, err := folder.lock()
	if err != nil {
		_ = folder.Close() // only looked at
		return nil, fmt.Errorf("filestate: %s: %w", dir, err)
	}
	s, err := open(folder, lock, cfg.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("filestate: %s: %w", dir, errors.Join(err, lock.Close(), folder.Close()))
	}
	return s, nil
}

// open begins with what the folder holds. It is rewritten at once: what was read may
// be in the memory of the system only, and the end of the log may be torn.
func open(f folder, lock io.Closer, cfg Config) (*Store, error) {
	found, err := load(f)
	if err != nil {
		return nil, err
	}
	s := &Store{
		config: cfg, lock: lock,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
		log:     log{folder: f, logger: cfg.Logger, damaged: found.setAside > 0},
		entries: found.entries, bytes: found.bytes, last: found.last,
		pending: make(map[string]*request),
		stats:   Stats{SetAside: found.setAside, SetAsideBytes: found.skipped, Torn: found.torn},
	}
	if found.setAside > 0 {
		cfg.Logger.Error("parts of the state log are damaged and set aside",
			"parts", found.setAside, "bytes", found.skipped, "kept_as", damagedName)
	}
	if found.torn > 0 {
		cfg.Logger.Warn("torn end of the state log cut off", "bytes", found.torn)
	}
	if err := s.commit(nil); err != nil {
		cfg.Logger.Warn("state log could not be rewritten; it will be with the next write", "error", err)
	}
	go s.write()
	return s, nil
}

// Get implements [state.Store]. It never waits for the disk.
func (s *Store) Get(ctx context.Context, key string) ([]byte, state.Version, error) {
	value, version, err := s.get(ctx, key)
	if err != nil {
		return nil, state.Absent, fmt.Errorf("filestate: get: %w", err)
	}
	return value, version, nil
}

func (s *Store) get(ctx context.Context, key string) ([]byte, state.Version, error) {
	if err := check(ctx, key); err != nil {
		return nil, state.Absent, err
	}
	s.mu.Lock()
	e, ok := s.entries[key]
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return nil, state.Absent, ErrClosed
	case !ok:
		return nil, state.Absent, state.ErrNotFound
	}
	return bytes.Clone(e.value), e.version, nil
}

// CompareAndSwap implements [state.Store]. When it returns nil the value is on the
// disk. When ctx ends while the disk is at work, the value may be written still.
func (s *Store) CompareAndSwap(ctx context.Context, key string, old state.Version, value []byte) (state.Version, error) {
	r := &request{record: record{kind: put, key: key, value: append([]byte{}, value...)}}
	if err := s.change(ctx, r, old); err != nil {
		return state.Absent, fmt.Errorf("filestate: compare and swap: %w", err)
	}
	return r.version, nil
}

// Delete implements [state.Store], with what CompareAndSwap says of the disk and ctx.
func (s *Store) Delete(ctx context.Context, key string, old state.Version) error {
	r := &request{record: record{kind: remove, key: key}}
	if err := s.change(ctx, r, old); err != nil {
		return fmt.Errorf("filestate: delete: %w", err)
	}
	return nil
}

// change has r written, and waits for that.
func (s *Store) change(ctx context.Context, r *request, old state.Version) error {
	if err := check(ctx, r.key); err != nil {
		return err
	}
	r.done = make(chan struct{})
	for {
		before, err := s.enqueue(r, old)
		if err != nil {
			return err
		}
		if before == nil {
			break
		}
		select { // what becomes of that one decides about this one
		case <-before.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		s.withdraw(r)
		return ctx.Err()
	}
}

// enqueue queues r unless it can't be; if another change of the key is on its way,
// that one is returned.
func (s *Store) enqueue(r *request, old state.Version) (before *request, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if before = s.pending[r.key]; before != nil {
		return before, nil
	}
	e, exists := s.entries[r.key]
	if r.kind == remove && !exists {
		return nil, state.ErrNotFound
	}
	if e.version != old { // a key without a value has the zero entry: Absent
		return nil, state.ErrConflict
	}
	if err := s.reserve(r, e, exists); err != nil {
		return nil, err
	}
	s.last++
	r.version = s.last
	s.pending[r.key] = r
	s.queue = append(s.queue, r)
	s.signal()
	return nil, nil
}

// reserve makes sure that there is room for r even if nothing else that is pending
// makes any. The caller holds mu.
func (s *Store) reserve(r *request, e entry, exists bool) error {
	if r.kind == remove {
		return nil
	}
	r.room.bytes = max(int64(len(r.value)-len(e.value)), 0)
	if !exists {
		r.room = room{keys: 1, bytes: int64(len(r.key) + len(r.value))}
	}
	keys, size := len(s.entries)+s.reserved.keys+r.room.keys, s.bytes+s.reserved.bytes+r.room.bytes
	if r.room.keys > 0 && keys > s.config.fixed.MaxKeys || r.room.bytes > 0 && size > s.config.MaxBytes {
		s.stats.Refused++
		return fmt.Errorf("%w: %d keys, %d bytes", state.ErrFull, keys, size)
	}
	s.reserved.keys += r.room.keys
	s.reserved.bytes += r.room.bytes
	return nil
}

// release is what reserve and enqueue did, undone. The caller holds mu.
func (s *Store) release(r *request) {
	s.reserved.keys -= r.room.keys
	s.reserved.bytes -= r.room.bytes
	delete(s.pending, r.key)
}

// withdraw takes r back if nobody has begun to write it.
func (s *Store) withdraw(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue, r); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
		s.release(r)
		close(r.done) // for those who wait for the key
	}
}

// signal wakes the writer. The caller holds mu or has just changed what it guards.
func (s *Store) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Keys implements [state.Store]. The keys are those at the moment the range begins.
func (s *Store) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		keys, err := s.sorted(prefix)
		for _, key := range keys {
			if ctx.Err() != nil {
				break
			}
			if !yield(key, nil) {
				return
			}
		}
		if err == nil {
			err = ctx.Err() // also for an empty result: a done context never looks like "no keys"
		}
		if err != nil {
			yield("", fmt.Errorf("filestate: keys: %w", err))
		}
	}
}

func (s *Store) sorted(prefix string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	var keys []string
	for key := range s.entries {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// Stats returns how s is doing.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Keys, out.Bytes = len(s.entries), s.bytes
	return out
}

// Close writes what is queued and gives the folder back. It waits for the disk.
// Calls after the first do nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	s.signal()
	<-s.ended
	if !first {
		return nil
	}
	if err := errors.Join(s.log.close(), s.lock.Close(), s.log.folder.Close()); err != nil {
		return fmt.Errorf("filestate: close: %w", err)
	}
	return nil
}

func check(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return state.CheckKey(key)
}

const (
	groupCount = 256     // changes that share an fsync
	groupBytes = 8 << 20 // after so many no more join
)

// write is the writer: one goroutine that makes groups of changes durable until the
// store is closed and the queue empty.
func (s *Store) write() {
	defer close(s.ended)
	for {
		group := s.next()
		if len(group) == 0 {
			return
		}
		err := s.commit(group)
		if err != nil {
			s.config.Logger.Error("writing the state log failed", "writes", len(group), "error", err)
		}
		s.settle(group, err)
	}
}

// next waits for changes; none means that there will be no more.
func (s *Store) next() []*request {
	for {
		queued, closed := s.queued()
		if queued > 0 {
			if group := s.take(); len(group) > 0 {
				return group
			}
			continue // they were withdrawn
		}
		if closed {
			return nil
		}
		<-s.wake
	}
}

func (s *Store) queued() (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue), s.closed
}

func (s *Store) take() []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(s.queue) && n < groupCount && size < groupBytes {
		size += s.queue[n].size()
		n++
	}
	group := s.queue[:n:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return group
}

// settle has what was written be seen, and tells who waits.
func (s *Store) settle(group []*request, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.stats.Writes += uint64(len(group))
	} else {
		s.stats.Failures++
	}
	for _, r := range group {
		s.release(r)
		if r.err = err; err == nil {
			s.set(r.record)
		}
		close(r.done)
	}
}

// set changes entries. The caller holds mu.
func (s *Store) set(r record) {
	s.bytes -= footprint(r.key, s.entries)
	if r.kind == remove {
		delete(s.entries, r.key)
		return
	}
	s.entries[r.key] = entry{value: r.value, version: r.version}
	s.bytes += footprint(r.key, s.entries)
}

// commit makes a group durable, in the log as it is or in a new one.
func (s *Store) commit(group []*request) error {
	s.mu.Lock()
	live := fileHeadSize + s.bytes + headSize*int64(len(s.entries))
	last := s.last
	s.mu.Unlock()
	defer s.count()

	if s.log.usable() && !s.log.bloated(live) {
		return s.log.append(group)
	}
	err := s.log.rewrite(s.records(group), last)
	if err != nil && s.log.usable() { // the old one is as good as it was
		s.config.Logger.Warn("state log could not be compacted", "error", err)
		err = s.log.append(group)
	}
	return err
}

// records are all that there is when group is written: what the new log will hold.
// Only the writer, who calls it, changes entries.
func (s *Store) records(group []*request) []record {
	changed := make(map[string]struct{}, len(group))
	out := make([]record, 0, len(s.entries)+len(group))
	for _, r := range group {
		changed[r.key] = struct{}{}
		if r.kind == put {
			out = append(out, r.record)
		}
	}
	for key, e := range s.entries {
		if _, ok := changed[key]; !ok {
			out = append(out, record{version: e.version, kind: put, key: key, value: e.value})
		}
	}
	return out
}

// count shows what the log did.
func (s *Store) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.File, s.stats.Syncs, s.stats.Rewrites = s.log.size, s.log.syncs, s.log.rewrites
}

// load reads the log of a folder; there may be none.
func load(f folder) (contents, error) {
	in, size, err := f.Open(logName)
	if errors.Is(err, fs.ErrNotExist) {
		return contents{entries: make(map[string]entry), last: state.Absent}, nil
	}
	if err != nil {
		return contents{}, fmt.Errorf("opening the log: %w", err)
	}
	defer in.Close() //nolint:errcheck // only read
	return read(in, size)
}
