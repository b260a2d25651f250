package gitserve

import "time"

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

func (c Config) pace(v *visit, end time.Time) pace {
	return pace{visit: v, idle: c.Idle, window: c.RateWindow, least: max(int64(float64(c.MinRate)*c.RateWindow.Seconds()), 1), end: end}
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
