package session

import (
	"time"
)

// Cooling is the last pause after a complaint about the request rate. The next connection continues
// with it.
type Cooling struct {
	Until time.Time
	For   time.Duration
}

const (
	// cooldown is the first pause. It doubles up to maxCooldown.
	cooldown    = 65 * time.Second
	maxCooldown = time.Hour
	// quiet is the time without complaints after which the pause and the pace are reduced.
	quiet = 5 * time.Minute

	// leastPace is the time between two historic requests after the first complaint. Relays built
	// with rust-nostr refill by whole seconds since the last request.
	leastPace = 1100 * time.Millisecond
	maxPace   = 10 * time.Second
)

type pacing struct {
	last  Cooling
	until time.Time // no new request before; zero: no pause

	every time.Duration // minimum time between two historic requests, 0: none
	since time.Time
	next  time.Time // no historic request before; zero: no limit
}

// complained records a complaint and reports whether it is new. A complaint during a pause concerns
// earlier requests.
func (p *pacing) complained(now time.Time) bool {
	if now.Before(p.until) {
		return false
	}
	d := cooldown
	if p.last.For > 0 && now.Sub(p.last.Until) < quiet {
		d = min(2*p.last.For, maxCooldown)
	}
	p.until = now.Add(d)
	p.last = Cooling{Until: p.until, For: d}
	if p.every == 0 {
		p.every = leastPace
	} else {
		p.every = min(2*p.every, maxPace)
	}
	p.since = p.until
	return true
}

// cooling reports whether no request may be sent. It also ends waits that are over.
func (p *pacing) cooling(now time.Time) bool {
	if now.Before(p.until) {
		return true
	}
	p.until = time.Time{}
	if !now.Before(p.next) {
		p.next = time.Time{}
	}
	return false
}

func (p *pacing) asked(now time.Time) {
	if p.every == 0 {
		return
	}
	if now.Sub(p.since) >= quiet {
		p.every, p.since = max(leastPace, p.every*3/4), now
	}
	p.next = now.Add(p.every)
}

func (p *pacing) believe(every time.Duration) {
	if every == 0 {
		p.every, p.next = 0, time.Time{}
	} else if p.every == 0 {
		p.every = min(every, maxPace)
	}
}
