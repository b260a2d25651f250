package wstransport

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mostHeld is how long one message may hold a part of the read budget.
	mostHeld = 2 * time.Minute
	// leastRate is how fast, in bytes a second, a message must come while others wait
	// for the part that it holds, after a grace that slow starts and lost packets need.
	leastRate  = 64 << 10
	leastGrace = 2 * time.Second
	// hadAges is after what time what a host has had counts for half.
	hadAges = time.Minute
	// mostHosts bounds the hosts of which it is known how long they held parts.
	mostHosts = 10_000
)

// readBudget shares the bytes that large messages may take while they are read. Each
// message takes as much as the largest one needs: connections that each held a piece
// and waited for more would wait for each other for ever. Of those that wait the host
// has its turn that has lately held parts for the shortest time, so that a relay that sends
// slowly, or without end, is behind all others. Hosts that have yet to prove
// themselves leave half of the parts to those that have.
type readBudget struct {
	part   int64 // set by newReadBudget, read-only
	proven int64 // what hosts that are not proven leave; set likewise

	mu sync.Mutex
	// guarded by mu
	left    int64
	holders int
	waiting []*reader
	had     map[string]time.Duration // by host: how long it held parts
	aged    time.Time                // when that was last halved
}

// reader is a connection that waits for a part of the budget, or holds it.
type reader struct {
	host   string
	proven bool
	since  time.Time     // when it got its part
	turn   chan struct{} // closed then
}

func newReadBudget(total, part int64) *readBudget {
	return &readBudget{part: part, left: total, proven: total / part / 2 * part, had: make(map[string]time.Duration)}
}

// acquire waits until there is a part for r.
func (b *readBudget) acquire(ctx context.Context, r *reader) error {
	r.turn = make(chan struct{})
	b.mu.Lock()
	b.waiting = append(b.waiting, r)
	b.serve()
	b.mu.Unlock()
	select {
	case <-r.turn:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, r); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else {
		b.ended(r)
		b.left += b.part
	}
	b.serve() // it may have stood before others
	return ctx.Err()
}

// serve gives parts to those who wait, as far as there are any.
func (b *readBudget) serve() {
	b.age(time.Now())
	for {
		next := -1
		for i, r := range b.waiting {
			if b.left < b.part || !r.proven && b.left-b.part < b.proven {
				continue
			}
			if next < 0 || b.had[r.host] < b.had[b.waiting[next].host] {
				next = i
			}
		}
		if next < 0 {
			return
		}
		r := b.waiting[next]
		b.waiting = slices.Delete(b.waiting, next, next+1)
		b.left -= b.part
		b.holders++
		r.since = time.Now()
		close(r.turn)
	}
}

// age has what hosts have had count for less.
func (b *readBudget) age(now time.Time) {
	if now.Sub(b.aged) < hadAges {
		return
	}
	b.aged = now
	for host, had := range b.had {
		if b.had[host] = had / 2; had < time.Millisecond {
			delete(b.had, host)
		}
	}
}

// read notes that the message of r is here.
func (b *readBudget) read(r *reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended(r)
}

func (b *readBudget) ended(r *reader) {
	b.had[r.host] += time.Since(r.since)
	if b.holders--; b.holders == 0 && len(b.waiting) == 0 || len(b.had) > mostHosts {
		clear(b.had) // nobody is short of anything
	}
}

// release gives back n bytes.
func (b *readBudget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	b.serve()
}

// contended reports whether anybody waits.
func (b *readBudget) contended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) > 0
}

// waits is how long a relay was not read from for our own reasons.
type waits struct {
	mu sync.Mutex
	// guarded by mu
	total time.Duration // of the waits that are over
	since time.Time     // of the one that is not, zero if there is none
}

// during counts the time until the function that it returns is called.
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

// progress ends a connection whose relay stalls while it holds a part of the read
// budget. A nil one does nothing.
type progress struct {
	c     *conn
	got   atomic.Int64
	began time.Time

	mu sync.Mutex
	// guarded by mu
	timer  *time.Timer // nil: stopped
	chunks int64       // of got, when the last chunk was complete
	last   time.Time   // when that was
}

// every is how often it is looked.
func (p *progress) every() time.Duration {
	return min(500*time.Millisecond, p.c.t.cfg.fixed.PingTimeout/4+1)
}

// look ends the connection if too little has come.
func (p *progress) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return
	}
	if p.stalls(time.Now()) {
		_ = p.c.end(errStalled) // Receive says it
		return
	}
	p.timer.Reset(p.every())
}

// stalls reports whether too little has come by now. p.mu is held.
func (p *progress) stalls(now time.Time) bool {
	got := p.got.Load()
	if got-p.chunks >= chunk {
		p.chunks, p.last = got, now
	}
	held := now.Sub(p.began)
	slow := held > leastGrace && float64(got) < leastRate*(held-leastGrace).Seconds()
	return now.Sub(p.last) >= p.c.t.cfg.fixed.PingTimeout || held >= mostHeld || slow && p.c.t.reading.contended()
}

// read notes that n bytes have arrived.
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
