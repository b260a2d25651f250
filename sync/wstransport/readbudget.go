package wstransport

import (
	"sync"
	"time"
)

const (
	// messagesPerHost is the number of large messages of one host that may be read concurrently.
	messagesPerHost = 4
	// mostHeld is the maximum time that one message may hold its part of the read budget.
	mostHeld = 2 * time.Minute
	// leastRate is the rate in bytes per second below which a message gives up its part if another
	// host waits for it. Slow starts and lost packets take leastGrace.
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

// progress ends a connection whose relay stalls or sends slowly while it holds a part of the read
// budget. A nil progress does nothing.
type progress struct {
	c          *conn
	began      time.Time
	got, moved int         // bytes; moved is got at the last complete chunk
	stalled    *time.Timer // ends the connection without a further chunk
}

func (c *conn) expectProgress() *progress {
	return &progress{c: c, began: time.Now(), stalled: time.AfterFunc(c.t.cfg.fixed.PingTimeout, func() {
		_ = c.end(errStalled)
	})}
}

// read records that n bytes have arrived, and returns an error if they are too few.
func (p *progress) read(n int) error {
	if p == nil {
		return nil
	}
	if p.got += n; p.got-p.moved >= chunk {
		p.moved = p.got
		p.stalled.Reset(p.c.t.cfg.fixed.PingTimeout)
	}
	held := time.Since(p.began)
	slow := held > leastGrace && float64(p.got) < leastRate*(held-leastGrace).Seconds()
	if held >= mostHeld || slow && p.c.slot.HasWaiter() {
		return errStalled
	}
	return nil
}

func (p *progress) stop() {
	if p != nil {
		p.stalled.Stop()
	}
}
