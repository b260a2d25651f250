package state

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Memory is a [Store] in memory, made by [NewMemory]. It is safe for concurrent use, and refuses
// records beyond 256 MiB with [ErrFull].
type Memory struct {
	maxBytes int // set by NewMemory, read-only

	mu sync.Mutex
	// guarded by mu; values are replaced, never modified
	values map[string][]byte
	bytes  int // of keys and values
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return newMemory(256 << 20) }

func newMemory(maxBytes int) *Memory {
	return &Memory{maxBytes: maxBytes, values: make(map[string][]byte)}
}

// Get implements [Store].
func (m *Memory) Get(ctx context.Context, key string) ([]byte, error) {
	if err := check(ctx, []string{key}, nil); err != nil {
		return nil, fmt.Errorf("reading a record: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[key]
	if !ok {
		return nil, fmt.Errorf("reading a record: %w", ErrNotFound)
	}
	return bytes.Clone(value), nil
}

// Put implements [Store].
func (m *Memory) Put(ctx context.Context, records ...Record) error {
	if err := check(ctx, nil, records); err != nil {
		return fmt.Errorf("writing records: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	after := make(map[string][]byte, len(records))
	for _, r := range records {
		after[r.Key] = append([]byte{}, r.Value...)
	}
	size := m.bytes
	for key, value := range after {
		size += len(key) + len(value) - m.size(key)
	}
	if size > max(m.maxBytes, m.bytes) {
		return fmt.Errorf("writing records: %w: %d bytes", ErrFull, size)
	}
	maps.Copy(m.values, after)
	m.bytes = size
	return nil
}

func (m *Memory) size(key string) int {
	value, ok := m.values[key]
	if !ok {
		return 0
	}
	return len(key) + len(value)
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, keys ...string) error {
	if err := check(ctx, keys, nil); err != nil {
		return fmt.Errorf("deleting records: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		m.bytes -= m.size(key)
		delete(m.values, key)
	}
	return nil
}

// Each implements [Store]. It yields the records that exist when the loop begins.
func (m *Memory) Each(ctx context.Context, prefix string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for _, r := range m.sorted(prefix) {
			if ctx.Err() != nil {
				break
			}
			if !yield(r, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil { // otherwise a canceled context would look like an empty Store
			yield(Record{}, fmt.Errorf("reading records: %w", err))
		}
	}
}

func (m *Memory) sorted(prefix string) []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	var records []Record
	for key, value := range m.values {
		if strings.HasPrefix(key, prefix) {
			records = append(records, Record{key, bytes.Clone(value)})
		}
	}
	slices.SortFunc(records, func(a, b Record) int { return cmp.Compare(a.Key, b.Key) })
	return records
}
