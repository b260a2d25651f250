package wstransport

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync/limit"
)

const (
	// messagesPerHost is the number of large messages of one host that may be read concurrently.
	messagesPerHost = 4
	// mostHeld is the maximum time that one message may hold its part of the read budget.
	mostHeld = 2 * time.Minute
	// leastRate is the rate in bytes per second below which a message gives up its part if another
	// host waits for it. It applies after leastGrace, because slow starts and lost packets take time.
	leastRate  = 64 << 10
	leastGrace = 2 * time.Second
)

// waits is the time in which the relay was not read for reasons on this side.
type waits struct {
	mu sync.Mutex
	// guarded by mu
	total time.Duration // of ended waits
	since time.Time     // beginning of the current wait, or zero
}

// during counts the time until the returned function is called.
func (w *waits) during() (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.total += time.Since(w.since)
		w.since = time.Time{}
	}
}

func (w *waits) sum() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return w.total
	}
	return w.total + time.Since(w.since)
}

// progress ends a connection whose relay stalls while it holds a part of the read budget. A nil
// progress does nothing.
type progress struct {
	c     *conn
	slot  *limit.Slot
	got   atomic.Int64
	began time.Time

	mu sync.Mutex
	// guarded by mu
	timer  *time.Timer // nil if stopped
	chunks int64       // value of got at the last complete chunk
	last   time.Time   // time of the last complete chunk
}

// every is the interval of checks.
func (p *progress) every() time.Duration {
	return min(500*time.Millisecond, p.c.t.cfg.fixed.PingTimeout/4+1)
}

// look ends the connection if too few bytes have arrived.
func (p *progress) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return
	}
	if p.stalls(time.Now()) {
		_ = p.c.end(errStalled) // Receive returns the error
		return
	}
	p.timer.Reset(p.every())
}

// stalls reports whether too few bytes have arrived. p.mu must be held.
func (p *progress) stalls(now time.Time) bool {
	got := p.got.Load()
	if got-p.chunks >= chunk {
		p.chunks, p.last = got, now
	}
	held := now.Sub(p.began)
	slow := held > leastGrace && float64(got) < leastRate*(held-leastGrace).Seconds()
	return now.Sub(p.last) >= p.c.t.cfg.fixed.PingTimeout || held >= mostHeld || slow && p.slot.Wanted()
}

// read records that n bytes have arrived.
func (p *progress) read(n int) {
	if p != nil {
		p.got.Add(int64(n))
	}
}

func (p *progress) stop() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
	p.timer = nil
}
