package wstransport

import (
	"sync"
	"time"
)

// pulse gives signs of life to a relay and asks for them. A timer has it done: a goroutine that
// waited would take a stack, and on most of many connections nothing ever happens.
type pulse struct {
	c *conn

	mu sync.Mutex
	// guarded by mu
	timer *time.Timer // nil while it is done, and after the end
	ended bool

	// owned by whom the timer calls, one at a time
	next   time.Time // the next beat
	late   time.Time // by when the relay must have given a sign of life, zero: it was not asked for one
	before uint64    // signs of life when it was asked
}

func newPulse(c *conn) *pulse { return &pulse{c: c} }

func (p *pulse) start() {
	p.next = time.Now().Add(p.c.t.cfg.fixed.PingInterval)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arm(p.next)
}

// arm has it done at some time. What is to be done counts as a goroutine of the connection.
// p.mu is held.
func (p *pulse) arm(at time.Time) {
	p.c.wg.Add(1)
	p.timer = time.AfterFunc(time.Until(at), func() {
		defer p.c.wg.Done()
		p.c.contain(p.run)
	})
}

// disarm undoes that, if it is not too late. p.mu is held.
func (p *pulse) disarm() {
	if p.timer != nil && p.timer.Stop() {
		p.c.wg.Done()
	}
	p.timer = nil
}

// stop has nothing done any more.
func (p *pulse) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.disarm()
}

// hurry has it done now.
func (p *pulse) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.timer == nil || !p.timer.Stop() { // else it is being done, or will be in a moment
		return
	}
	p.arm(time.Now())
	p.c.wg.Done() // of the one before
}

// run is what the timer calls.
func (p *pulse) run() {
	p.mu.Lock()
	p.timer = nil
	ended := p.ended
	p.mu.Unlock()
	if ended {
		return
	}
	p.look(time.Now())
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
	case p.c.signs.flood.Load():
		p.arm(time.Now())
	case !p.late.IsZero() && p.late.Before(p.next):
		p.arm(p.late)
	default:
		p.arm(p.next)
	}
}

// look does what is due.
func (p *pulse) look(now time.Time) {
	c := p.c
	if c.signs.flood.Load() {
		_ = c.end(errFlood) // Receive says it
		return
	}
	if !p.late.IsZero() && !now.Before(p.late) {
		p.late = time.Time{}
		if c.signs.heard.Load() == p.before {
			_ = c.end(errSilent) // Receive says it
			return
		}
	}
	if now.Before(p.next) {
		return
	}
	for every := c.t.cfg.fixed.PingInterval; !now.Before(p.next); {
		p.next = p.next.Add(every)
	}
	c.signs.controls.Store(0)
	// While we are parked the relay's pings are out of reach, and so would be its pong. In
	// this order: if we are parked after all by the time the pong is due, that has counted as a sign
	// of life; see park.
	heard := c.signs.heard.Load()
	ping := !c.parked.Load()
	if err := c.beat(ping); err == nil && ping && p.late.IsZero() {
		p.before, p.late = heard, time.Now().Add(c.t.cfg.fixed.PingTimeout)
	}
}
