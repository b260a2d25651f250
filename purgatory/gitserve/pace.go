package gitserve

import (
	"errors"
	"net/http"
	"time"
)

// pace is how fast a client has to send, or to take: so many bytes in each window. The
// time in which we keep it waiting does not count. It knows the moment at which a wait
// becomes too long, so that nobody has to watch.
type pace struct {
	idle   time.Duration // the longest single wait
	window time.Duration
	least  int64     // bytes for each window
	end    time.Time // of everything; zero: never
	visit  *visit    // of whom; nil: nobody who shares anything

	came   int64         // since the last time there were enough
	waited time.Duration // since then
}

// sending is the pace of a client that sends.
func (c Config) sending(v *visit, end time.Time) pace {
	return pace{visit: v, idle: c.fixed.Idle, window: c.fixed.RateWindow, least: c.least(c.fixed.RateWindow), end: end}
}

// blind is how many times longer a client that takes something is looked at. What it
// takes is seen late: only when a third of what the system keeps for its connection is
// free, 1.3 MB by default with Linux, is there room for more; and a proxy keeps some, too.
const blind = 8

// taking is the pace of a client that takes.
func (c Config) taking(v *visit, end time.Time) pace {
	window := blind * c.fixed.RateWindow
	return pace{visit: v, idle: window, window: window, least: c.least(window), end: end}
}

func (c Config) least(window time.Duration) int64 {
	return max(int64(float64(c.fixed.MinRate)*window.Seconds()), 1)
}

// deadline is when a wait that begins now must have brought something.
func (p *pace) deadline(now time.Time) time.Time {
	at := now.Add(min(p.idle, p.window-p.waited))
	if !p.end.IsZero() && p.end.Before(at) {
		return p.end
	}
	return at
}

// step notes what a wait has brought.
func (p *pace) step(n int, took time.Duration) {
	p.came += int64(n)
	p.waited += took
	if p.came >= p.least {
		p.came, p.waited = 0, 0
	}
}

// during gives one wait for the client its time.
func (p *pace) during(limit func(time.Time) error, f func() (int, error)) (int, error) {
	began := time.Now()
	if err := p.visit.arm(limit, began, p.deadline(began)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := f()
	took := time.Since(began)
	p.step(n, took)
	if left := p.visit.disarm(n, took); left != nil && err != nil {
		return n, left
	}
	return n, err
}
