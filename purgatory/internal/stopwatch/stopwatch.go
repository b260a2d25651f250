// Package stopwatch counts the time that somebody works, and not the time that others
// keep them waiting: how much that is says nothing about them.
package stopwatch

import (
	"context"
	"sync"
	"time"
)

// Watch counts the time that work takes which is under a [Watch.Limit], but for the time
// between [Waits] and what that returns. It is safe for concurrent use.
type Watch struct {
	most    time.Duration // of waiting, in all
	crowded error

	mu sync.Mutex
	// guarded by mu
	worked, waited time.Duration // until at
	at             time.Time
	waits          int // who waits now
	limits         map[*limit]struct{}
	timer          *time.Timer // nil: nothing was ever limited
}

// limit ends work.
type limit struct {
	of     *Watch
	at     time.Duration // of the time that is worked
	over   error
	cancel context.CancelCauseFunc
}

// New returns a Watch. Who has waited for most in all is kept waiting no longer: their
// contexts end, and crowded is the cause.
func New(most time.Duration, crowded error) *Watch {
	return &Watch{most: most, crowded: crowded, limits: make(map[*limit]struct{})}
}

// Worked returns how much has been worked.
func (w *Watch) Worked() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count()
	return w.worked
}

// Limit returns a context for work, which ends when that has taken so much time, with over
// as its cause. cancel says that the work has ended, and must be called.
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

// Waits says that work in ctx does not go on before done is called, since others have what
// it needs. It is nothing to a context that no Watch has limited.
func Waits(ctx context.Context) (done func()) {
	l, limited := ctx.Value(key{}).(*limit)
	if !limited {
		return func() {}
	}
	l.of.wait(1)
	return sync.OnceFunc(func() { l.of.wait(-1) })
}

// Left returns how much time work in ctx may take yet; limited is false if no Watch has a
// say in that.
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

// count adds up the time since it was called last. It is called with mu held, as ring is.
func (w *Watch) count() {
	now := time.Now()
	switch {
	case len(w.limits) == 0: // nobody works
	case w.waits > 0:
		w.waited += now.Sub(w.at)
	default:
		w.worked += now.Sub(w.at)
	}
	w.at = now
}

// ring ends what is over, and has itself called when the next is.
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
