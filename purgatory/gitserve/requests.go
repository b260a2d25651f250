package gitserve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync/limit"
)

type slots struct {
	*limit.Slots
	wait    time.Duration
	refused atomic.Uint64 // callers whose wait timed out
}

// errBusy is wrapped if a request gets no slot, or must give up its own.
var errBusy = errors.New("too many requests at once")

func (s *slots) acquire(ctx context.Context, who limit.Stranger, units int64) (*limit.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	slot, err := s.Acquire(ctx, who, units)
	if err != nil {
		s.refused.Add(1)
		return nil, fmt.Errorf("%w: %w", errBusy, err)
	}
	return slot, nil
}

type requests struct {
	open, processes *slots
	window          time.Duration // RateWindow
	yielded         atomic.Uint64
	yielding        atomic.Pointer[transfer] // was ended and has not returned yet
}

func newRequests(n numbers, processes, part int) *requests {
	return &requests{
		open:      &slots{Slots: limit.NewSlots(int64(n.MaxReaders), int64(n.MaxPerClient)), wait: n.Wait},
		processes: &slots{Slots: limit.NewSlots(int64(processes), int64(part)), wait: n.Wait},
		window:    n.RateWindow,
	}
}

const (
	fast        = 64 << 10 // bytes per second; faster clients never yield
	settleShare = 10       // divides RateWindow: the speed of a client is measured over that time
	checkShare  = 40       // divides RateWindow: time between checks of a transfer
	// writeWindows times RateWindow is the maximum time of a write. Linux accepts more data only
	// after a third of the send buffer, by default 1.3 MB, is free.
	writeWindows = 8
)

// transfer is an open request. While other requests wait for one of its slots, it ends if its
// client is slow or if it is queued.
type transfer struct {
	of     *requests
	who    limit.Stranger
	cancel context.CancelCauseFunc

	mu sync.Mutex
	// guarded by mu
	held  []*limit.Slot
	timer *time.Timer           // calls check; nil after the end
	limit func(time.Time) error // sets the deadline of the current read or write, nil between them
	began time.Time             // start of the current read or write
	// left is the time that a client may still take and be fast: less the time spent waiting for it,
	// plus the time that the moved bytes may take.
	left   time.Duration
	queued bool  // waits for the lock of a repository, or for the release of events
	err    error // reason for the end
}

// begin waits for a slot and opens a request. Reads and writes fail when the returned context ends.
func (r *requests) begin(ctx context.Context, who limit.Stranger) (_ context.Context, t *transfer, end func(), err error) {
	slot, err := r.open.acquire(ctx, who, 1)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t = &transfer{of: r, who: who, cancel: cancel, left: r.window / settleShare}
	release := t.hold(slot)
	t.mu.Lock()
	t.timer = time.AfterFunc(r.window/checkShare, t.check)
	t.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { t.fail(context.Cause(ctx)) })
	return ctx, t, func() {
		stop()
		cancel(nil)
		release()
		t.mu.Lock()
		t.timer.Stop()
		t.timer = nil
		t.mu.Unlock()
		r.yielding.CompareAndSwap(t, nil)
	}, nil
}

func (t *transfer) hold(slot *limit.Slot) (release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = append(t.held, slot)
	return func() {
		t.mu.Lock()
		t.held = slices.DeleteFunc(t.held, func(s *limit.Slot) bool { return s == slot })
		t.mu.Unlock()
		slot.Release()
	}
}

// check ends a slow transfer if other requests wait for one of its slots, one transfer at a time.
func (t *transfer) check() {
	t.mu.Lock()
	slow := t.queued || t.limit != nil && time.Since(t.began) >= t.left
	slow, held := slow && t.err == nil, slices.Clone(t.held)
	t.mu.Unlock()
	if slow && slices.ContainsFunc(held, (*limit.Slot).HasWaiter) && t.of.yielding.CompareAndSwap(nil, t) {
		t.of.yielded.Add(1)
		t.fail(fmt.Errorf("%w: slow client", errBusy))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Reset(t.of.window / checkShare)
	}
}

func (t *transfer) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	if t.limit != nil {
		_ = t.limit(time.Now()) // a connection without deadlines cannot be interrupted
	}
	t.cancel(err)
}

func (t *transfer) setQueued(queued bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = queued
	return t.err
}

type stream struct {
	*transfer
	setDeadline func(time.Time) error
	idle        time.Duration // maximum time of a read or write
	end         time.Time     // overall deadline; zero: none
}

func (s *stream) move(f func() (int, error)) (int, error) {
	t, began := s.transfer, time.Now()
	until := began.Add(s.idle)
	if !s.end.IsZero() && s.end.Before(until) {
		until = s.end
	}
	t.mu.Lock()
	if t.err != nil {
		defer t.mu.Unlock()
		return 0, t.err
	}
	t.limit, t.began = s.setDeadline, began
	err := t.limit(until)
	t.mu.Unlock()
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := f()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit = nil
	t.left = min(t.of.window/settleShare, t.left-time.Since(began)+time.Duration(n)*time.Second/fast)
	if t.err != nil && err != nil {
		err = t.err
	}
	return n, err
}

// tasks are running requests and background work, safe for concurrent use.
type tasks struct {
	ctx  context.Context //nolint:containedctx // ends with close: requests have their own
	stop context.CancelFunc
	mu   sync.Mutex // held to begin a task, and to close
	wg   sync.WaitGroup
}

func newTasks() *tasks {
	ctx, stop := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, stop: stop}
}

func (t *tasks) close() {
	t.mu.Lock()
	t.stop()
	t.mu.Unlock()
	t.wg.Wait()
}

func (t *tasks) begin(ctx context.Context) (_ context.Context, end func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() != nil {
		return nil, nil, false
	}
	t.wg.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		t.wg.Done()
	}, true
}

// beside runs f until close.
func (t *tasks) beside(f func(context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() == nil {
		t.wg.Go(func() { f(t.ctx) })
	}
}
