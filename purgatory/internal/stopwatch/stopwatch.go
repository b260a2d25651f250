// Package stopwatch measures the time that a task works, without the time that it waits for a busy
// resource.
package stopwatch

import (
	"context"
	"sync"
	"time"
)

// Watch measures the time during which at least one [Watch.Limit] is active, without the time
// between [Waits] and its done. It is safe for concurrent use.
type Watch struct {
	most    time.Duration // maximum total wait
	crowded error

	mu sync.Mutex
	// guarded by mu
	worked, waited time.Duration // until at
	at             time.Time
	waits          int // number of active waits
	limits         map[*limit]struct{}
	timer          *time.Timer // nil before the first limit
}

// limit is the limit of one task.
type limit struct {
	of     *Watch
	at     time.Duration // end, in worked time
	over   error
	cancel context.CancelCauseFunc
}

// New returns a Watch. After a total wait of most, all limited contexts end with crowded as the
// cause.
func New(most time.Duration, crowded error) *Watch {
	return &Watch{most: most, crowded: crowded, limits: make(map[*limit]struct{})}
}

// Worked returns the time worked so far.
func (w *Watch) Worked() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count()
	return w.worked
}

// Limit returns a context that ends after most of work, with over as the cause. cancel ends the
// measurement and must be called.
func (w *Watch) Limit(ctx context.Context, most time.Duration, over error) (limited context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count()
	l := &limit{of: w, at: w.worked + most, over: over, cancel: end}
	w.limits[l] = struct{}{}
	w.ring()
	return context.WithValue(ctx, key{}, l), func() {
		end(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count()
		delete(w.limits, l)
		w.ring()
	}
}

type key struct{}

// Waits stops the watch of ctx until done is called, because the task waits for a busy resource. It
// does nothing if ctx has no Watch.
func Waits(ctx context.Context) (done func()) {
	l, limited := ctx.Value(key{}).(*limit)
	if !limited {
		return func() {}
	}
	l.of.wait(1)
	return sync.OnceFunc(func() { l.of.wait(-1) })
}

// Left returns the time that the task of ctx may still work. limited is false if ctx has no Watch.
func Left(ctx context.Context) (left time.Duration, limited bool) {
	l, limited := ctx.Value(key{}).(*limit)
	if !limited {
		return 0, false
	}
	return max(0, l.at-l.of.Worked()), true
}

func (w *Watch) wait(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count()
	w.waits += n
	w.ring()
}

// count adds the time since its last call. mu is held, as in ring.
func (w *Watch) count() {
	now := time.Now()
	switch {
	case len(w.limits) == 0: // no task works
	case w.waits > 0:
		w.waited += now.Sub(w.at)
	default:
		w.worked += now.Sub(w.at)
	}
	w.at = now
}

// ring cancels tasks that are over their limit, and sets the timer for the next one.
func (w *Watch) ring() {
	next, due := time.Duration(0), false
	for l := range w.limits {
		left, cause := l.at-w.worked, l.over
		if w.waits > 0 {
			left, cause = w.most-w.waited, w.crowded
		}
		if left <= 0 {
			l.cancel(cause)
		} else if !due || left < next {
			next, due = left, true
		}
	}
	switch {
	case w.timer != nil && due:
		w.timer.Reset(next)
	case w.timer != nil:
		w.timer.Stop()
	case due:
		w.timer = time.AfterFunc(next, func() { w.wait(0) })
	}
}
