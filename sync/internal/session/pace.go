package session

import (
	"time"
)

// Cooling is a time without new requests after a relay complained of too many, the last
// one that there was. The next connection goes on from there.
type Cooling struct {
	Until time.Time
	For   time.Duration
}

const (
	// maxCooldown is where doubling ends, if Config.Cooldown is not more.
	maxCooldown = time.Hour
	// quiet is for how long a relay must not complain, while it is being asked, for what
	// it complained of before to count for less.
	quiet = 5 * time.Minute

	// leastPace is between two historic requests after the first complaint; each further
	// one doubles that, and each time of quiet takes a quarter off again. Relays built with
	// rust-nostr give back by whole seconds since the last request: whoever asks faster
	// than that gets nothing back.
	leastPace = 1100 * time.Millisecond
	mostPace  = 10 * time.Second // a relay that wants less is left alone in between
)

// pacing is how fast a relay is asked that has complained.
type pacing struct {
	last  Cooling
	until time.Time // nothing new is asked for before, zero: at once

	every time.Duration // between two historic requests, 0: as their turns come
	since time.Time     // when that was settled
	next  time.Time     // no historic request before, zero: at once
}

// complained takes in that the relay complains, and reports whether that is news. What it
// says while it is being left alone is about what was sent before: if that put off the
// end, a relay that complains once a minute would never be asked again.
func (p *pacing) complained(now time.Time, base time.Duration) bool {
	if now.Before(p.until) {
		return false
	}
	d := base
	if p.last.For > 0 && now.Sub(p.last.Until) < quiet {
		d = min(2*p.last.For, max(base, maxCooldown))
	}
	p.until = now.Add(d)
	p.last = Cooling{Until: p.until, For: d}
	if p.every == 0 {
		p.every = leastPace
	} else {
		p.every = min(2*p.every, mostPace)
	}
	p.since = p.until
	return true
}

// cooling reports whether nothing new may be asked for.
func (p *pacing) cooling(now time.Time) bool {
	if now.Before(p.until) {
		return true
	}
	p.until = time.Time{}
	return false
}

// pass lets the next historic request go when its time has come.
func (p *pacing) pass(now time.Time) {
	if !now.Before(p.next) {
		p.next = time.Time{}
	}
}

// asked notes a historic request.
func (p *pacing) asked(now time.Time) {
	if p.every == 0 {
		return
	}
	if now.Sub(p.since) >= quiet {
		p.every, p.since = max(leastPace, p.every*3/4), now
	}
	p.next = now.Add(p.every)
}

// believe takes over what is believed of the relay.
func (p *pacing) believe(every time.Duration) {
	if every == 0 {
		p.every, p.next = 0, time.Time{}
	} else if p.every == 0 {
		p.every = min(every, mostPace)
	}
}
