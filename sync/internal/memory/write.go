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

// Run writes until ctx ends. What is queued then is not written: call Flush before.
// It must be called once, unless the Memory has no store.
func (m *Memory) Run(ctx context.Context) {
	defer close(m.ended)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		group, due := m.take(time.Now())
		if len(group) > 0 {
			m.write(ctx, group)
			continue
		}
		var lazy <-chan time.Time
		if !due.IsZero() {
			timer.Reset(time.Until(due))
			lazy = timer.C
		}
		select {
		case <-m.wake:
		case <-lazy:
		case <-ctx.Done():
		}
	}
}

// take returns what is to be written now: first what somebody waits for. due is when
// there will be more.
func (m *Memory) take(now time.Time) (group map[string]*change, due time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	group = make(map[string]*change)
	move := func(key string) {
		if c := m.queue[key]; c != nil {
			group[key] = c
			delete(m.queue, key)
		}
	}
	for len(m.urgent) > 0 && len(group) < groupSize {
		move(m.urgent[0])
		m.urgent = m.urgent[1:]
	}
	if len(group) > 0 {
		return group, m.lazyAt
	}
	m.urgent = nil
	if m.lazyAt.IsZero() || now.Before(m.lazyAt) {
		return nil, m.lazyAt
	}
	for key := range m.queue {
		if move(key); len(group) >= groupSize {
			break
		}
	}
	if len(m.queue) == 0 {
		m.lazyAt = time.Time{}
	}
	return group, m.lazyAt
}

// write writes changes, several at once, and tells who waits.
func (m *Memory) write(ctx context.Context, group map[string]*change) {
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for key, c := range group {
		slots <- struct{}{}
		wg.Go(func() {
			err := m.save(ctx, key, c)
			if err != nil {
				m.failed(ctx, key, c, err)
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
func (m *Memory) failed(ctx context.Context, key string, c *change, err error) {
	switch {
	case errors.Is(err, errTooLong):
		m.cfg.Dropped("memory_size", 1)
		return
	case errors.Is(err, state.ErrFull):
		m.cfg.Dropped("memory_full", 1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.queue[key] == nil && !errors.Is(err, state.ErrFull) {
		m.queue[key] = &change{make: c.make}
	}
	if len(m.queue) > 0 {
		m.lazyAt = now.Add(retryPause)
	}
	if ctx.Err() == nil && now.Sub(m.loggedAt) >= time.Minute {
		m.loggedAt = now
		m.cfg.Logger.Error("what is to survive a restart could not be written", "key", key, "error", err)
	}
}

// save makes one change durable. We are the only writer of our keys; should there be
// another one, the last wins.
func (m *Memory) save(ctx context.Context, key string, c *change) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	value, keep := c.make()
	if len(value) > m.cfg.MaxValue {
		return fmt.Errorf("%w: %d bytes", errTooLong, len(value))
	}
	m.mu.Lock()
	has := m.written[key]
	m.mu.Unlock()
	sum := maphash.Bytes(m.seed, value)
	if !has.unsure && (keep && has.version != state.Absent && has.sum == sum || !keep && has.version == state.Absent) {
		return nil
	}
	version, err := m.swap(ctx, key, has.version, value, keep)
	if errors.Is(err, state.ErrConflict) || errors.Is(err, state.ErrNotFound) {
		if _, version, err = m.store.Get(ctx, key); err == nil || errors.Is(err, state.ErrNotFound) {
			version, err = m.swap(ctx, key, version, value, keep)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, state.ErrNotFound):
		m.written[key] = written{unsure: true}
		return fmt.Errorf("writing: %w", err)
	case keep:
		m.written[key] = written{version: version, sum: sum}
	default:
		delete(m.written, key)
	}
	return nil
}

func (m *Memory) swap(ctx context.Context, key string, old state.Version, value []byte, keep bool) (state.Version, error) {
	if keep {
		return m.store.CompareAndSwap(ctx, key, old, value)
	}
	if old == state.Absent {
		return state.Absent, state.ErrNotFound
	}
	return state.Absent, m.store.Delete(ctx, key, old)
}

// Flush returns when everything that was told before is durable; the error says what
// is not.
func (m *Memory) Flush(ctx context.Context) error {
	m.mu.Lock()
	done := make([]chan error, 0, len(m.queue))
	for key, c := range m.queue {
		if len(c.waiters) == 0 {
			m.urgent = append(m.urgent, key)
		}
		d := make(chan error, 1)
		c.waiters = append(c.waiters, d)
		done = append(done, d)
	}
	m.signal()
	m.mu.Unlock()
	var first error
	for _, d := range done {
		if err := m.await(ctx, d); err != nil && first == nil {
			first = err
		}
	}
	return first
}
