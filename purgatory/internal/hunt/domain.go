package hunt

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// window is what a rate is counted over.
const window = time.Minute

// pauseLeast is how long a server is left alone at least that asks for it.
const pauseLeast = time.Minute

// domain is one server: what it was burdened with, and what waits for it.
type domain struct {
	limit     Limit
	inFlight  int
	starts    []time.Time    // of requests in the last window, oldest first
	delivered int            // requests that brought something
	broken    backoff.Streak // requests in a row that were Broken
	slow      bool           // its last request took long
	usedAt    time.Time
	turns     []*turn                     // repositories in order of their turns
	turn      uint64                      // counts them
	had       map[graspsync.PubKey]uint64 // the last one of each owner that waits
}

// turn is what waits of one repository.
type turn struct {
	entry *entry
	urls  []graspsync.CloneURL
}

// hasRoom reports whether a request may start now. Nobody who comes later overtakes
// what waits.
func (d *domain) hasRoom(now time.Time) bool {
	return len(d.turns) == 0 && d.open(now)
}

func (d *domain) open(now time.Time) bool {
	d.expire(now)
	return d.inFlight < d.limit.Concurrent && len(d.starts) < d.limit.PerMinute
}

func (d *domain) expire(now time.Time) {
	n := 0
	for n < len(d.starts) && now.Sub(d.starts[n]) >= window {
		n++
	}
	d.starts = slices.Delete(d.starts, 0, n)
}

// start reserves what open has found.
func (d *domain) start(now time.Time) {
	d.inFlight++
	d.starts = append(d.starts, now)
	d.usedAt = now
}

// takeBack undoes start: the server was not burdened.
func (d *domain) takeBack(at time.Time) {
	d.inFlight = max(0, d.inFlight-1)
	if i := slices.IndexFunc(d.starts, at.Equal); i >= 0 {
		d.starts = slices.Delete(d.starts, i, i+1)
	}
}

func (d *domain) finished(now time.Time, o Outcome, cfg Config) {
	d.inFlight = max(0, d.inFlight-1)
	d.usedAt = now
	switch o {
	case Complete, Partial:
		d.delivered++
		d.broken.Times = 0
	case Nothing:
		d.broken.Times = 0
	case Broken:
		d.broken.Again(now, cfg.BrokenMin, cfg.BrokenMax)
	}
}

func (d *domain) enter(u graspsync.CloneURL, e *entry) {
	i := slices.IndexFunc(d.turns, func(t *turn) bool { return t.entry == e })
	if i < 0 {
		d.turns = append(d.turns, &turn{entry: e})
		i = len(d.turns) - 1
		if _, waits := d.had[e.repo.Owner]; !waits {
			if d.had == nil {
				d.had = make(map[graspsync.PubKey]uint64)
			}
			d.had[e.repo.Owner] = d.turn // who comes now overtakes nobody who waits
		}
	}
	d.turns[i].urls = append(d.turns[i].urls, u)
}

func (d *domain) leave(u graspsync.CloneURL, e *entry) {
	for i, t := range d.turns {
		if t.entry == e {
			t.urls = slices.DeleteFunc(t.urls, func(o graspsync.CloneURL) bool { return o == u })
			if len(t.urls) == 0 {
				d.turns = slices.Delete(d.turns, i, i+1)
				d.forget(e.repo.Owner)
			}
			return
		}
	}
}

// next takes the next request out: one URL of the repository whose turn it is, which
// then goes to the end. It is the turn of the owner who had none for longest, however
// many repositories others have.
func (d *domain) next() (*entry, graspsync.CloneURL) {
	best := 0
	for i, t := range d.turns {
		if d.had[t.entry.repo.Owner] < d.had[d.turns[best].entry.repo.Owner] {
			best = i
		}
	}
	t := d.turns[best]
	u := t.urls[0]
	t.urls = t.urls[1:]
	d.turns = slices.Delete(d.turns, best, best+1)
	if len(t.urls) > 0 {
		d.turns = append(d.turns, t)
	}
	d.turn++
	d.had[t.entry.repo.Owner] = d.turn
	d.forget(t.entry.repo.Owner)
	return t.entry, u
}

// forget forgets an owner of whom nothing waits.
func (d *domain) forget(owner graspsync.PubKey) {
	if !slices.ContainsFunc(d.turns, func(t *turn) bool { return t.entry.repo.Owner == owner }) {
		delete(d.had, owner)
	}
}

// reopens returns when a request may start that waits for the rate only. What waits
// for a request to finish is woken by that.
func (d *domain) reopens(now time.Time) (time.Time, bool) {
	d.expire(now)
	if len(d.turns) == 0 || d.inFlight >= d.limit.Concurrent || len(d.starts) < d.limit.PerMinute {
		return time.Time{}, false
	}
	return d.starts[0].Add(window), true
}
