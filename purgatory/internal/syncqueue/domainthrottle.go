package syncqueue

import (
	"cmp"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

const (
	window   = time.Minute // the period of [Limit.PerMinute]
	minPause = time.Minute // the shortest pause for a server that is busy
)

// Limit bounds the requests to one domain (host and port).
type Limit struct {
	Concurrent int // requests in flight
	PerMinute  int // requests in any 60 s
}

// domainThrottle holds the limits of all domains, and the requests that count toward them.
type domainThrottle struct {
	limit   Limit
	limits  map[graspsync.HostPort]Limit // instead of limit
	domains map[graspsync.HostPort]*domain
}

// domain is one server.
type domain struct {
	limit     Limit
	inFlight  int            // requests
	starts    []time.Time    // of requests in the last window, oldest first
	delivered bool           // some request brought objects
	broken    backoff.Streak // the server is not asked before its end
	usedAt    time.Time
}

func (t *domainThrottle) of(a graspsync.HostPort) *domain {
	d := t.domains[a]
	if d == nil {
		l, ok := t.limits[a]
		if !ok {
			l = t.limit
		}
		d = &domain{limit: l}
		t.domains[a] = d
	}
	return d
}

func (d *domain) full() bool { return d.inFlight >= d.limit.Concurrent }

func (d *domain) expire(now time.Time) {
	n := 0
	for n < len(d.starts) && now.Sub(d.starts[n]) >= window {
		n++
	}
	d.starts = slices.Delete(d.starts, 0, n)
}

// opens returns the time from which the rate allows one more request.
func (d *domain) opens(now time.Time) time.Time {
	if d.expire(now); len(d.starts) < d.limit.PerMinute {
		return now
	}
	return d.starts[0].Add(window)
}

// isOpen reports whether a request may start now.
func (d *domain) isOpen(now time.Time) bool { return !d.full() && !d.opens(now).After(now) }

func (d *domain) start(now time.Time) {
	d.starts = append(d.starts, now)
	d.usedAt = now
	d.inFlight++
}

// end takes in the outcome of a request that began at a time.
func (d *domain) end(now, began time.Time, in Fetched, cfg Config) {
	d.usedAt = now
	d.inFlight--
	switch in.Outcome {
	case Unasked: // the server was not asked
		if i := slices.IndexFunc(d.starts, began.Equal); i >= 0 {
			d.starts = slices.Delete(d.starts, i, i+1)
		}
		return
	case Complete, Partial:
		d.delivered = true
		d.broken.Times = 0
	case Nothing:
		d.broken.Times = 0
	case Broken:
		if !d.broken.Waits(now) { // else another request that was in flight has counted
			d.broken.Again(now, cfg.BrokenMin, cfg.BrokenMax)
		}
	}
	if in.Pause > 0 {
		d.broken.Until = backoff.Later(d.broken.Until, now.Add(min(max(in.Pause, minPause), cfg.BrokenMax)))
	}
}

// forget drops the domains that were used longest ago and have no request in flight or in the window, if
// there are more than most.
func (t *domainThrottle) forget(now time.Time, most int) {
	if len(t.domains) <= most {
		return
	}
	var idle []graspsync.HostPort
	for a, d := range t.domains {
		if d.expire(now); d.inFlight == 0 && len(d.starts) == 0 {
			idle = append(idle, a)
		}
	}
	slices.SortFunc(idle, func(a, b graspsync.HostPort) int {
		return cmp.Or(t.domains[a].usedAt.Compare(t.domains[b].usedAt), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port))
	})
	for _, a := range idle[:min(len(idle), len(t.domains)-most)] {
		delete(t.domains, a)
	}
}
