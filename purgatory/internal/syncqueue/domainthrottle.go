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
	minPause = time.Minute // minimum pause of a busy server
)

// Limit bounds the requests to one domain (host and port).
type Limit struct {
	Concurrent int // requests in flight
	PerMinute  int // requests in any 60 s
}

type domainThrottle struct {
	limit   Limit
	limits  map[graspsync.HostPort]Limit // exceptions from limit
	domains map[graspsync.HostPort]*domain
}

type domain struct {
	limit     Limit
	inFlight  int            // requests
	starts    []time.Time    // of requests in the last window, oldest first
	delivered bool           // a request brought objects
	broken    backoff.Streak // pause of a broken or busy server
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

// opens returns the earliest time of the next request within the rate.
func (d *domain) opens(now time.Time) time.Time {
	if d.expire(now); len(d.starts) < d.limit.PerMinute {
		return now
	}
	return d.starts[0].Add(window)
}

func (d *domain) isOpen(now time.Time) bool { return !d.full() && !d.opens(now).After(now) }

func (d *domain) start(now time.Time) {
	d.starts = append(d.starts, now)
	d.usedAt = now
	d.inFlight++
}

func (d *domain) end(now, began time.Time, in Fetched, cfg Config) {
	d.usedAt = now
	d.inFlight--
	switch in.Outcome {
	case Unasked: // the server was not asked
		if i := slices.IndexFunc(d.starts, began.Equal); i >= 0 {
			d.starts = slices.Delete(d.starts, i, i+1)
		}
		return
	case Broken:
		if !d.broken.Waits(now) { // else a concurrent request has counted
			d.broken.Again(now, cfg.BrokenMin, cfg.BrokenMax)
		}
	default:
		d.broken.Times = 0
		d.delivered = d.delivered || in.Outcome <= Partial
	}
	if in.Pause > 0 {
		d.broken.Until = backoff.Later(d.broken.Until, now.Add(min(max(in.Pause, minPause), cfg.BrokenMax)))
	}
}

// forget removes the least recently used domains without recent requests if there are more than
// most.
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
