package state

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
)

// Memory is an unbounded [Store] in memory, made by [NewMemory]. It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	values map[string][]byte // guarded by mu; values are replaced, never modified
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{values: make(map[string][]byte)} }

// Put implements [Store].
func (m *Memory) Put(ctx context.Context, records ...Record) error {
	if err := checkArgs(ctx, nil, records); err != nil {
		return fmt.Errorf("writing records: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		m.values[r.Key] = bytes.Clone(r.Value)
	}
	return nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, keys ...string) error {
	if err := checkArgs(ctx, keys, nil); err != nil {
		return fmt.Errorf("deleting records: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
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
