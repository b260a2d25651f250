package wstransport

import (
	"sync"
	"time"
)

const (
	// messagesPerHost is the number of large messages of one host that may be read concurrently.
	messagesPerHost = 4
	// maxHold is the maximum time that one message may hold its part of the read budget.
	maxHold = 2 * time.Minute
	// minRate is the rate in bytes per second below which a message gives up its part if another
	// host waits for it. The rate is not checked during rateGrace, because connections start slowly.
	minRate   = 64 << 10
	rateGrace = 2 * time.Second
)

// readWait is the total time in which the connection waited for the read budget.
type readWait struct {
	mu sync.Mutex
	// guarded by mu
	total time.Duration // without the current wait
	since time.Time     // beginning of the current wait, or zero
}

func (w *readWait) start() (stop func()) {
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

func (w *readWait) length() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return w.total
	}
	return w.total + time.Since(w.since)
}

// readProgress ends a connection whose relay stalls or sends slowly while it holds a part of the
// read budget. A nil readProgress does nothing.
type readProgress struct {
	c                 *conn
	began             time.Time
	received, atChunk int         // bytes; atChunk is received at the last complete chunk
	timer             *time.Timer // ends the connection without a further chunk
}

func (c *conn) watchProgress() *readProgress {
	return &readProgress{c: c, began: time.Now(), timer: time.AfterFunc(c.t.cfg.fixed.PingTimeout, func() {
		_ = c.end(errStalled)
	})}
}

// add records that n bytes have arrived, and returns an error if they are too few.
func (p *readProgress) add(n int) error {
	if p == nil {
		return nil
	}
	if p.received += n; p.received-p.atChunk >= chunk {
		p.atChunk = p.received
		p.timer.Reset(p.c.t.cfg.fixed.PingTimeout)
	}
	held := time.Since(p.began)
	slow := held > rateGrace && float64(p.received) < minRate*(held-rateGrace).Seconds()
	if held >= maxHold || slow && p.c.slot.HasWaiter() {
		return errStalled
	}
	return nil
}

func (p *readProgress) stop() {
	if p != nil {
		p.timer.Stop()
	}
}
