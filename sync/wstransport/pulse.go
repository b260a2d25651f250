package wstransport

import (
	"sync"
	"sync/atomic"
	"time"
)

// pulse sends and checks signs of life. It uses a timer, because a waiting goroutine would need a
// stack per connection, and most connections are idle.
type pulse struct {
	c *conn

	mu sync.Mutex
	// guarded by mu
	timer *time.Timer // nil while the timer function runs, and after the end
	ended bool

	// owned by the timer function, which runs once at a time
	next   time.Time // next beat
	late   time.Time // deadline for a sign of life after a ping, or zero
	before uint64    // signs of life before the ping
}

func newPulse(c *conn) *pulse { return &pulse{c: c} }

func (p *pulse) start() {
	p.next = time.Now().Add(p.c.t.cfg.fixed.PingInterval)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arm(p.next)
}

// arm schedules the timer function. A scheduled run counts as a goroutine of the connection. p.mu
// must be held.
func (p *pulse) arm(at time.Time) {
	p.c.wg.Add(1)
	p.timer = time.AfterFunc(time.Until(at), func() {
		defer p.c.wg.Done()
		p.c.contain(p.run)
	})
}

// disarm cancels a scheduled run unless it has begun. p.mu must be held.
func (p *pulse) disarm() {
	if p.timer != nil && p.timer.Stop() {
		p.c.wg.Done()
	}
	p.timer = nil
}

// stop ends the pulse.
func (p *pulse) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.disarm()
}

// hurry runs the timer function now.
func (p *pulse) hurry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.timer == nil || !p.timer.Stop() { // otherwise it runs now or soon
		return
	}
	p.arm(time.Now())
	p.c.wg.Done() // of the previous run
}

// run is the timer function.
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

// look performs the actions that are due.
func (p *pulse) look(now time.Time) {
	c := p.c
	if c.signs.flood.Load() {
		_ = c.end(errFlood) // Receive returns the error
		return
	}
	if !p.late.IsZero() && !now.Before(p.late) {
		p.late = time.Time{}
		if c.signs.heard.Load() == p.before {
			_ = c.end(errSilent) // Receive returns the error
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
	// While the reading goroutine is parked, neither pings nor pongs of the relay are read. In this
	// order, because parking counts as a sign of life; see park.
	heard := c.signs.heard.Load()
	ping := !c.parked.Load()
	if err := c.beat(ping); err == nil && ping && p.late.IsZero() {
		p.before, p.late = heard, time.Now().Add(c.t.cfg.fixed.PingTimeout)
	}
}

// maxControls is the maximum number of pings and pongs that a relay may send within 29 s. They cost
// CPU and never reach Receive.
const maxControls = 1000

// signs counts the signs of life of a relay.
type signs struct {
	heard    atomic.Uint64 // all signs
	controls atomic.Int64  // pings and pongs since the last tick
	flood    atomic.Bool   // there were too many
	pulse    *pulse        // gets a flood; set before reading begins
	framing  framing       // bytes without content
}

func newSigns() *signs { return &signs{} }

// control records a ping or pong, and returns whether to answer it. The websocket library calls it,
// so it must not close the websocket.
func (s *signs) control() bool {
	s.heard.Add(1)
	s.framing.control()
	if s.controls.Add(1) <= maxControls {
		return true
	}
	s.flood.Store(true)
	s.pulse.hurry()
	return false
}

// A client's ping and pong without payload. They are final and masked with a zero key, as RFC 6455
// requires.
//
// They are written below the websocket library, because the library cannot send an unsolicited
// pong, and cannot distinguish an unsent ping from an unanswered one. This is safe because the
// library writes a control frame in one call, as we do, and writes messages, which may take several
// calls, only in Send, which holds c.writing like we do.
const (
	pingFrame = "\x89\x80\x00\x00\x00\x00"
	pongFrame = "\x8a\x80\x00\x00\x00\x00"
)
