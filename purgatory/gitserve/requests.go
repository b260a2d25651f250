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

// slots are [limit.Slots] for which a caller waits for a limited time.
type slots struct {
	*limit.Slots
	refused atomic.Uint64 // callers that waited for too long
}

func newSlots(total, part int) *slots {
	return &slots{Slots: limit.NewSlots(int64(total), int64(part))}
}

// errBusy is wrapped when there is no room for a request, or no more.
var errBusy = errors.New("too many requests at once")

// acquire waits for one slot for at most the given time. Its error wraps errBusy.
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

// busy answers a request for which there was no slot in time.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "30")
	http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
}

// requests bounds the requests of one kind. An open request costs a connection and files. It takes a slot
// for a git process when its client has sent everything.
type requests struct {
	open, processes *slots
	settle          time.Duration // the speed of a client is not judged earlier

	mu sync.Mutex
	// guarded by mu
	yielding *transfer // yields and has not ended yet
	yielded  uint64
}

const (
	fast        = 64 << 10 // bytes per second; a client that is faster does not yield
	settleShare = 10       // the speed of a client is judged after this share of RateWindow, and of about as long
	checkShare  = 4        // a transfer is checked as often in that time
	checkPause  = 10 * time.Millisecond
)

func newRequests(cfg Config, processes, part int) *requests {
	return &requests{
		open: newSlots(cfg.fixed.MaxReaders, cfg.fixed.MaxPerClient), processes: newSlots(processes, part),
		settle: cfg.fixed.RateWindow / settleShare,
	}
}

// transfer is an open request: the slots that it holds, and the speed of its client. While others wait
// for one of its slots, it ends if its client is slow or if it waits for the lock of a repository.
type transfer struct {
	of     *requests
	who    limit.Stranger
	cancel context.CancelCauseFunc
	close  func() // releases the slot of an open request

	mu sync.Mutex
	// guarded by mu
	held   []*limit.Slot
	timer  *time.Timer           // of check; nil after the end
	limit  func(time.Time) error // sets the deadline of the read or write that waits for the client, or nil
	began  time.Time             // of that wait
	moved  int64                 // bytes, lately
	waited time.Duration         // for these
	queued bool                  // it waits for the lock of a repository
	err    error                 // why it ends
}

// begin waits for a slot and opens a request. The context ends when the request has to end, and no read
// or write waits for the client then.
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

// hold adds a slot to those that a transfer holds, until release is called.
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

// check ends a transfer if others wait for one of its slots, and its client is slow. One transfer yields
// at a time, so that no more of them end than others wait.
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
	t.fail(fmt.Errorf("%w: too slow for that", errBusy))
	return true
}

// count returns how many requests had to end because their clients were slow.
func (r *requests) count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.yielded
}

// isSlow reports whether a client is waited for and slow. It is called with mu held.
func (t *transfer) isSlow(now time.Time) bool {
	if t.limit == nil {
		return false
	}
	this := now.Sub(t.began)
	waited := t.waited + this
	return waited >= t.of.settle && (this >= t.of.settle || float64(t.moved)/waited.Seconds() < fast)
}

// fail ends a transfer, and the read or write that waits for its client.
func (t *transfer) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	if t.limit != nil {
		_ = t.limit(time.Now()) // a connection without deadlines can't be interrupted
	}
	t.cancel(err)
}

// setQueued notes whether a transfer waits for the lock of a repository. It returns why the transfer has to
// end, if it has.
func (t *transfer) setQueued(queued bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = queued
	return t.err
}

// patience sets the deadlines of the reads from a client, or of the writes to it: each window in which we wait
// for the client must move some bytes. The time in which the client waits for us does not count.
type patience struct {
	transfer *transfer // nil: it yields to nobody
	window   time.Duration
	least    int64     // bytes for each window
	end      time.Time // of everything; zero: never

	moved  int64         // in this window
	waited time.Duration // of this window
}

// patience returns that of a transfer over windows of so many times RateWindow.
func (c Config) patience(t *transfer, windows int, end time.Time) patience {
	window := time.Duration(windows) * c.fixed.RateWindow
	return patience{transfer: t, window: window, least: max(int64(float64(c.fixed.MinRate)*window.Seconds()), 1), end: end}
}

// writeWindows is the number of windows of reads that a write has. Writes are seen late: Linux takes more
// when a third of its buffer for the connection is free, which is 1.3 MB by default; a proxy has buffers, too.
const writeWindows = 8

// during gives one wait for the client its deadline.
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

// tasks are what is under way: close ends all of it, and returns when nothing of it is
// left. It is safe for concurrent use.
type tasks struct {
	ctx  context.Context //nolint:containedctx // ends with close: requests have their own
	stop context.CancelFunc
	mu   sync.Mutex // taken to begin something, and to close
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

// begin makes a request one that close ends and waits for.
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

// beside does something that may outlast its caller, unless all was closed. close ends it.
func (t *tasks) beside(f func(context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx.Err() == nil {
		t.wg.Go(func() { f(t.ctx) })
	}
}
