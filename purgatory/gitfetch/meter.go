package gitfetch

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync/purgatory/gitfetch/internal/upload"
)

// meter counts what comes from a server, and knows when something should.
type meter struct {
	n       atomic.Int64
	waiting atomic.Bool
	clock   *clock // belongs to who fetches
}

var _ upload.Meter = (*meter)(nil)

// Begin implements [upload.Meter].
func (m *meter) Begin() { m.waiting.Store(true) }

// Came implements [upload.Meter].
func (m *meter) Came(n int) { m.n.Add(int64(n)) }

// End implements [upload.Meter].
func (m *meter) End() { m.waiting.Store(false) }

// clock bounds the time that a server takes. It stands still while others keep us from
// listening to it.
type clock struct {
	over func(took time.Duration) (more time.Duration)

	mu sync.Mutex
	// guarded by mu
	timer *time.Timer
	given time.Duration // in all
	left  time.Duration
	since time.Time // zero: it stands still
	ended bool
}

// newClock returns a clock that stands still. over is called when the time is up, with
// what it was, and returns how much more there is; 0 if none. It is not called once end has
// returned.
func newClock(most time.Duration, over func(took time.Duration) (more time.Duration)) *clock {
	c := &clock{over: over, given: most, left: most}
	c.timer = time.AfterFunc(most, c.ring)
	c.timer.Stop()
	return c
}

func (c *clock) ring() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() || c.ended {
		return // it was stopped at this moment
	}
	c.left = c.over(c.given)
	c.given += c.left
	c.since = time.Now()
	if c.left > 0 {
		c.timer.Reset(c.left)
	}
}

func (c *clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = time.Now()
	c.timer.Reset(c.left)
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	if !c.since.IsZero() {
		c.left = max(0, c.left-time.Since(c.since))
	}
	c.since = time.Time{}
}

// end stops the clock for good.
func (c *clock) end() {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// rater judges the rate over a window that slides in steps.
type rater struct {
	least float64 // in a window
	seen  []int64 // the totals at the last steps, since something is waited for
}

// step is told the total at a step, and whether something is waited for. It reports
// what came in the window if that is too little.
func (r *rater) step(total int64, waiting bool) (came int64, slow bool) {
	if !waiting {
		r.seen = r.seen[:0]
		return 0, false
	}
	r.seen = append(r.seen, total)
	if len(r.seen) <= rateSteps {
		return 0, false
	}
	came = total - r.seen[0]
	r.seen = append(r.seen[:0], r.seen[1:]...)
	return came, float64(came) < r.least
}
