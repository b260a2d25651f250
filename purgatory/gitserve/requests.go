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

// slots are [limit.Slots] with a limited waiting time.
type slots struct {
	*limit.Slots
	refused atomic.Uint64 // callers whose wait timed out
}

func newSlots(total, part int) *slots {
	return &slots{Slots: limit.NewSlots(int64(total), int64(part))}
}

// errBusy is wrapped if a request gets no slot, or must give up its slots.
var errBusy = errors.New("too many requests at once")

// acquire waits for one slot for at most most. The error wraps errBusy.
func (s *slots) acquire(ctx context.Context, who limit.Stranger, most time.Duration) (*limit.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	slot, err := s.Acquire(ctx, who, 1)
	if err != nil {
		s.refused.Add(1)
		return nil, fmt.Errorf("%w: %w", errBusy, err)
	}
	return slot, nil
}

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "30")
	http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
}

// requests limits the requests of one kind. An open request costs a connection and files. It takes
// a slot for a git process after its client sent everything.
type requests struct {
	open, processes *slots
	settle          time.Duration // minimum time before a client counts as slow

	mu sync.Mutex
	// guarded by mu
	yielding *transfer // was ended and has not returned yet
	yielded  uint64
}

const (
	fast        = 64 << 10 // bytes per second; faster clients never yield
	settleShare = 10       // divides RateWindow: the speed of a client is measured over that time
	checkShare  = 4        // checks of a transfer in that time
	checkPause  = 10 * time.Millisecond
)

func newRequests(cfg Config, processes, part int) *requests {
	return &requests{
		open: newSlots(cfg.fixed.MaxReaders, cfg.fixed.MaxPerClient), processes: newSlots(processes, part),
		settle: cfg.fixed.RateWindow / settleShare,
	}
}

// transfer is an open request with its slots and the speed of its client. While other requests wait
// for one of its slots, a transfer ends if its client is slow or if it waits for the lock of a
// repository.
type transfer struct {
	of     *requests
	who    limit.Stranger
	cancel context.CancelCauseFunc
	close  func() // releases the slot of an open request

	mu sync.Mutex
	// guarded by mu
	held   []*limit.Slot
	timer  *time.Timer           // calls check; nil after the end
	limit  func(time.Time) error // sets the deadline of the current read or write, nil between them
	began  time.Time             // start of the current read or write
	moved  int64                 // bytes moved recently
	waited time.Duration         // time spent for moved
	queued bool                  // waits for the lock of a repository
	err    error                 // reason for the end
}

// begin waits for a slot and opens a request. The returned context ends when the request must end.
// Reads and writes then fail immediately.
func (r *requests) begin(ctx context.Context, who limit.Stranger, most time.Duration) (_ context.Context, t *transfer, end func(), err error) {
	slot, err := r.open.acquire(ctx, who, most)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t = &transfer{of: r, who: who, cancel: cancel}
	t.close = t.hold(slot)
	t.mu.Lock()
	t.timer = time.AfterFunc(r.settle/checkShare, t.check)
	t.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { t.fail(context.Cause(ctx)) })
	return ctx, t, func() {
		stop()
		cancel(nil)
		t.close()
		t.mu.Lock()
		t.timer.Stop()
		t.timer = nil
		t.mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.yielding == t {
			r.yielding = nil
		}
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

// check ends a transfer if its client is slow and other requests wait for one of its slots. Only
// one transfer yields at a time, so that not more transfers end than requests wait.
func (t *transfer) check() {
	t.mu.Lock()
	slow, held := t.err == nil && (t.queued || t.isSlow(time.Now())), slices.Clone(t.held)
	t.mu.Unlock()
	next := t.of.settle / checkShare
	if slow && slices.ContainsFunc(held, (*limit.Slot).Wanted) && !t.of.yield(t) {
		next = min(next, checkPause)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil {
		t.timer.Reset(next)
	}
}

func (r *requests) yield(t *transfer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.yielding != nil {
		return false
	}
	r.yielding = t
	r.yielded++
	t.fail(fmt.Errorf("%w: slow client", errBusy))
	return true
}

func (r *requests) count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.yielded
}

// isSlow reports whether the transfer waits for its client and the client is slow. The caller holds
// mu.
func (t *transfer) isSlow(now time.Time) bool {
	if t.limit == nil {
		return false
	}
	this := now.Sub(t.began)
	waited := t.waited + this
	return waited >= t.of.settle && (this >= t.of.settle || float64(t.moved)/waited.Seconds() < fast)
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

// setQueued records whether a transfer waits for the lock of a repository. It returns an error if
// the transfer must end.
func (t *transfer) setQueued(queued bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = queued
	return t.err
}

// patience sets deadlines for reads from or writes to a client. In each window of time spent
// waiting for the client, a minimum number of bytes must move.
type patience struct {
	transfer *transfer // may be nil, then it never yields
	window   time.Duration
	least    int64     // minimum bytes per window
	end      time.Time // overall deadline; zero: none

	moved  int64         // bytes in this window
	waited time.Duration // time spent in this window
}

// patience returns a patience with windows of windows times RateWindow.
func (c Config) patience(t *transfer, windows int, end time.Time) patience {
	window := time.Duration(windows) * c.fixed.RateWindow
	return patience{transfer: t, window: window, least: max(int64(float64(c.fixed.MinRate)*window.Seconds()), 1), end: end}
}

// writeWindows is the length of a window for writes, in windows for reads. Linux accepts more data
// only after a third of the send buffer is free, which is 1.3 MB by default, and proxies have
// buffers too.
const writeWindows = 8

// during calls f with a deadline.
func (p *patience) during(limit func(time.Time) error, f func() (int, error)) (n int, err error) {
	began := time.Now()
	until := began.Add(p.window - p.waited)
	if !p.end.IsZero() && p.end.Before(until) {
		until = p.end
	}
	if p.transfer == nil {
		_ = limit(until) // not every connection has deadlines
		n, err = f()
	} else {
		n, err = p.transfer.during(limit, until, f)
	}
	p.moved += int64(n)
	if p.waited += time.Since(began); p.moved >= p.least {
		p.moved, p.waited = 0, 0
	}
	return n, err
}

func (t *transfer) during(limit func(time.Time) error, until time.Time, f func() (int, error)) (int, error) {
	began := time.Now()
	t.mu.Lock()
	if t.err != nil {
		defer t.mu.Unlock()
		return 0, t.err
	}
	t.limit, t.began = limit, began
	err := limit(until)
	t.mu.Unlock()
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := f()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit = nil
	t.moved += int64(n)
	if t.waited += time.Since(began); t.waited > 2*t.of.settle {
		t.moved, t.waited = t.moved/2, t.waited/2
	}
	if t.err != nil && err != nil {
		err = t.err
	}
	return n, err
}

// tasks are running requests and background work. It is safe for concurrent use.
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

// begin registers a request. close cancels it and waits for its end.
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

// beside runs f in the background, unless the tasks are closed. close cancels f and waits.
func (t *tasks) beside(f func(context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() == nil {
		t.wg.Go(func() { f(t.ctx) })
	}
}
