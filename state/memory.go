package state

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
)

// memoryLimits are the bounds of a [Memory]; what does not fit is refused with [ErrFull].
type memoryLimits struct {
	keys  int
	bytes int64 // of all keys and values; one value can take all of it
}

// Memory is a [Store] in memory: durable until the process ends. It is safe for
// concurrent use. Make one with [NewMemory]. What does
// not fit into 100,000 keys and 256 MiB of keys and values is refused with [ErrFull].
type Memory struct {
	most memoryLimits // set by NewMemory, read-only

	mu sync.Mutex
	// guarded by mu
	entries map[string]entry
	bytes   int64   // keys and values
	last    Version // the newest version given out
	refused uint64
}

// entry is never changed in place: its value can be handed out for copying after
// the lock was released.
type entry struct {
	value   []byte
	version Version
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return newMemory(memoryLimits{keys: 100_000, bytes: 256 << 20}) }

func newMemory(most memoryLimits) *Memory {
	return &Memory{most: most, entries: make(map[string]entry)}
}

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key string) ([]byte, Version, error) {
	if err := check(ctx, key); err != nil {
		return nil, Absent, fmt.Errorf("state: get: %w", err)
	}
	m.mu.Lock()
	e, ok := m.entries[key]
	m.mu.Unlock()
	if !ok {
		return nil, Absent, fmt.Errorf("state: get: %w", ErrNotFound)
	}
	return bytes.Clone(e.value), e.version, nil
}

// CompareAndSwap implements [Store].
func (m *Memory) CompareAndSwap(ctx context.Context, key string, old Version, value []byte) (Version, error) {
	if err := check(ctx, key); err != nil {
		return Absent, fmt.Errorf("state: compare and swap: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, exists := m.entries[key]
	if e.version != old { // a key without a value has the zero entry: Absent
		return Absent, fmt.Errorf("state: compare and swap: %w", ErrConflict)
	}
	grown := m.bytes + int64(len(value)) - int64(len(e.value))
	entries := len(m.entries)
	if !exists {
		grown += int64(len(key))
		entries++
	}
	if entries > m.most.keys || grown > m.most.bytes {
		m.refused++
		return Absent, fmt.Errorf("state: compare and swap: %w: %d entries, %d bytes", ErrFull, entries, grown)
	}
	m.last++
	m.bytes = grown
	m.entries[key] = entry{value: append([]byte{}, value...), version: m.last}
	return m.last, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key string, old Version) error {
	if err := check(ctx, key); err != nil {
		return fmt.Errorf("state: delete: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if !ok {
		return fmt.Errorf("state: delete: %w", ErrNotFound)
	}
	if e.version != old {
		return fmt.Errorf("state: delete: %w", ErrConflict)
	}
	delete(m.entries, key)
	m.bytes -= int64(len(key) + len(e.value))
	return nil
}

// Keys implements [Store]. The keys are those at the moment the range begins.
func (m *Memory) Keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, key := range m.sorted(prefix) {
			if err := ctx.Err(); err != nil {
				yield("", fmt.Errorf("state: keys: %w", err))
				return
			}
			if !yield(key, nil) {
				return
			}
		}
		// Also for an empty result: a done context never looks like "no keys".
		if err := ctx.Err(); err != nil {
			yield("", fmt.Errorf("state: keys: %w", err))
		}
	}
}

func (m *Memory) sorted(prefix string) []string {
	m.mu.Lock()
	var keys []string
	for key := range m.entries {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	m.mu.Unlock()
	slices.Sort(keys)
	return keys
}

// Usage says how full a [Memory] is.
type Usage struct {
	Entries int
	Bytes   int64  // lengths of all keys and values
	Refused uint64 // writes that did not fit, since the start
}

// Usage returns how full m is.
func (m *Memory) Usage() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Usage{Entries: len(m.entries), Bytes: m.bytes, Refused: m.refused}
}

func check(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return CheckKey(key)
}
