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
	known     int // of these, those that began when it had delivered
	site      string
	inSites   map[string]map[*domain]struct{} // those with requests in flight, of each site
	starts    []time.Time                     // of requests in the last window, oldest first
	delivered int                             // requests that brought something
	served    served                          // for whom
	broken    backoff.Streak                  // requests in a row that were Broken
	slow      bool                            // its last request took long
	usedAt    time.Time
	turns     []*turn                     // repositories in order of their turns
	turn      uint64                      // counts them
	had       map[graspsync.PubKey]uint64 // the last one of each owner that waits
}

// served are owners for whom a domain has delivered, the last ones.
type served struct {
	is    map[graspsync.PubKey]struct{}
	order []graspsync.PubKey
}

// mostServed is of how many owners it is remembered that a domain has delivered for them.
const mostServed = 1000

func (s *served) add(owner graspsync.PubKey) {
	if s.has(owner) {
		return
	}
	if s.is == nil {
		s.is = make(map[graspsync.PubKey]struct{})
	}
	if len(s.order) == mostServed {
		delete(s.is, s.order[0])
		s.order = slices.Delete(s.order, 0, 1)
	}
	s.is[owner] = struct{}{}
	s.order = append(s.order, owner)
}

func (s *served) has(owner graspsync.PubKey) bool {
	_, has := s.is[owner]
	return has
}

// turn is what waits of one repository.
type turn struct {
	entry *entry
	urls  []graspsync.CloneURL
}

// hasRoom reports whether a request may start now. Nobody who comes later overtakes
// what waits, and may be asked for.
func (d *domain) hasRoom(now time.Time, may mayAsk) bool {
	return d.open(now) && !d.anyMay(may)
}

func (d *domain) open(now time.Time) bool {
	return !d.full() && d.rateAllows(now)
}

// full reports whether as many requests are in flight as may be: all domains of a site count as one, since more of them cost whoever
// has it nothing. But those that have delivered, and those that never have, count apart: anybody can name any port of a host, and a
// hub that is asked without end leaves nothing to who is new there.
func (d *domain) full() bool {
	n := 0
	for o := range d.inSites[d.site] {
		if d.delivered > 0 {
			n += o.known
		} else {
			n += o.inFlight - o.known
		}
	}
	return max(n, d.inFlight) >= d.limit.Concurrent
}

// half is where it counts.
func (d *domain) half() half { return half{d.site, d.delivered > 0} }

func (d *domain) rateAllows(now time.Time) bool {
	d.expire(now)
	return len(d.starts) < d.limit.PerMinute
}

// mayAsk says whether a repository may be asked for at a URL, as far as its domain has room.
type mayAsk func(e *entry, u graspsync.CloneURL) bool

// which returns which URL of a turn is next, -1 if none may be asked.
func (t *turn) which(may mayAsk) int {
	return slices.IndexFunc(t.urls, func(u graspsync.CloneURL) bool { return may(t.entry, u) })
}

// anyMay reports whether something waits that may be asked for.
func (d *domain) anyMay(may mayAsk) bool {
	return slices.ContainsFunc(d.turns, func(t *turn) bool { return t.which(may) >= 0 })
}

// waiters returns what waits and may be asked for.
func (d *domain) waiters(may mayAsk) (out []waiter) {
	for _, t := range d.turns {
		if i := t.which(may); i >= 0 {
			out = append(out, waiter{t.entry.repo.Owner, t.entry.stops[t.urls[i]] == 0})
		}
	}
	return out
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
	if d.inFlight++; d.inFlight == 1 {
		if d.inSites[d.site] == nil {
			d.inSites[d.site] = make(map[*domain]struct{})
		}
		d.inSites[d.site][d] = struct{}{}
	}
	if d.delivered > 0 {
		d.known++
	}
	d.starts = append(d.starts, now)
	d.usedAt = now
}

func (d *domain) ended(known bool) {
	if known {
		d.known--
	}
	if d.inFlight--; d.inFlight > 0 {
		return
	}
	delete(d.inSites[d.site], d)
	if len(d.inSites[d.site]) == 0 {
		delete(d.inSites, d.site)
	}
}

// takeBack undoes start: the server was not burdened.
func (d *domain) takeBack(r *request) {
	d.ended(r.known)
	if i := slices.IndexFunc(d.starts, r.at.Equal); i >= 0 {
		d.starts = slices.Delete(d.starts, i, i+1)
	}
}

func (d *domain) finished(now time.Time, r *request, o Outcome, cfg Config) {
	d.ended(r.known)
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
// many repositories others have, every other time of one for whom the domain has delivered: of those for whom
// it has not there can be any number, and they may ask for what takes long. What is new goes first where most places would be
// had by what was stopped before, of which so many requests are under way. nil: there is none that may be asked for.
func (d *domain) next(may mayAsk, stopped int) (*entry, graspsync.CloneURL) {
	best, which := -1, 0
	first := d.turn%2 == 0
	newOnly := stopped >= max(1, d.limit.Concurrent/2) && slices.ContainsFunc(d.waiters(may), func(w waiter) bool { return w.isNew })
	for i, t := range d.turns {
		w := t.which(may)
		if w < 0 || newOnly && t.entry.stops[t.urls[w]] > 0 {
			continue
		}
		if best >= 0 {
			a, b := t.entry.repo.Owner, d.turns[best].entry.repo.Owner
			isFirst, bestIs := d.served.has(a) == first, d.served.has(b) == first
			if isFirst != bestIs && bestIs || isFirst == bestIs && d.had[a] >= d.had[b] {
				continue
			}
		}
		best, which = i, w
	}
	if best < 0 {
		return nil, graspsync.CloneURL{}
	}
	t := d.turns[best]
	u := t.urls[which]
	t.urls = slices.Delete(t.urls, which, which+1)
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

// reopens returns when the rate lets somebody who waits be asked for; false if that is not what is waited for.
func (d *domain) reopens(now time.Time) (time.Time, bool) {
	if len(d.turns) == 0 || d.rateAllows(now) {
		return time.Time{}, false
	}
	return d.starts[0].Add(window), true
}

// asksAt returns when who does not wait yet may ask; false if that is not a matter of time.
func (d *domain) asksAt(now time.Time, may mayAsk) (at time.Time, ok bool) {
	if d.full() || d.anyMay(may) {
		return at, false
	}
	if !d.rateAllows(now) {
		at = d.starts[0].Add(window)
	}
	if d.broken.Waits(now) {
		at = backoff.Later(at, d.broken.Until)
	}
	return at, true
}
