package hunt

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// pool is something that has few places for requests: attempts, slow ones among these, requests that were left to domains,
// second ones, and each site. Whoever takes long gives his place to others that wait, wherever he has it, or strangers whose
// servers take as long as they may would have all of them. Half of a pool is left to who takes long while others wait that are new, and
// few places go to nobody else at all: so a large repository comes to its end.
type pool struct {
	places  int
	held    []RequestID
	waiting []waiter // what would begin if there was a place
	slow    bool     // those that were to be expected to take long count as if they did
	site    bool     // it is that of a site
}

// waiter is what waits for a place, for the owner of a repository. It is new if it was never stopped for others: it may be small.
type waiter struct {
	owner graspsync.PubKey
	isNew bool
}

// safe is how many that take long keep their places beside what is new.
func (p pool) safe() int { return max(1, p.places/2) }

// lasting is how many keep them beside others that were stopped, however long they take.
func (p pool) lasting() int { return max(1, p.safe()/2) }

// full reports whether somebody waits for a place that may be had.
func (p pool) full() bool {
	return len(p.waiting) > 0 && len(p.held) >= p.places && p.places > p.safe()
}

// leastPace is how many bytes a second say anything: below that one drips, or counts what it has before it sends any of that.
const leastPace = 1 << 10

// pace is how many bytes a second a request brings, as a power of two: less of a difference says nothing.
func (r *request) pace() int { return bits.Len64(uint64(r.speed) / leastPace) }

// long returns the requests of a pool that take long, those first that are to give way first: those that have had their time, then
// those that bring least, then those to servers that have delivered nothing for their owners, then of the owners who have most under way
// in it, and then which came last.
func (q *Queue) long(now time.Time, p pool, isLong func(*request) bool, running map[graspsync.PubKey]int) (all []RequestID) {
	for _, id := range p.held {
		if r := q.requests[id]; !r.stopped && isLong(r) {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, func(a, b RequestID) int {
		x, y := q.requests[a], q.requests[b]
		return cmp.Or(
			cmp.Compare(btoi(y.isOver(now)), btoi(x.isOver(now))), cmp.Compare(x.pace(), y.pace()), cmp.Compare(q.delivers(x), q.delivers(y)),
			cmp.Compare(running[y.entry.repo.Owner], running[x.entry.repo.Owner]), y.at.Compare(x.at), cmp.Compare(b, a))
	})
	return all
}

// delivers is 1 if the server of a request has delivered for its owner.
func (q *Queue) delivers(r *request) int { return btoi(q.domain(r.url).served.has(r.entry.repo.Owner)) }

// giveWay has requests of a pool stopped for what is new, and those that have had their time for what else waits.
func (q *Queue) giveWay(now time.Time, p pool) {
	if !p.full() {
		return
	}
	var fresh, others []waiter
	for _, w := range p.waiting {
		if w.isNew {
			fresh = append(fresh, w)
		} else {
			others = append(others, w)
		}
	}
	q.giveWayTo(now, p, fresh, 0, p.safe(), func(r *request) bool { return r.isInTheWay(now, len(fresh), p.places) })
	q.giveWayTo(now, p, others, len(fresh), p.lasting(), func(r *request) bool {
		if p.site {
			return r.isOverAtSite(now)
		}
		return r.isOver(now)
	})
}

// giveWayTo has requests of a pool stopped that take long, as many as have owners that wait with fewer under way than theirs. Who has
// many repositories has nobody else's stopped for one more. So many have the first places that others were stopped for, and so many that
// take long are safe.
func (q *Queue) giveWayTo(now time.Time, p pool, waiting []waiter, first, safe int, isLong func(*request) bool) {
	running, stopping, most := make(map[graspsync.PubKey]int), -first, -safe
	for _, id := range p.held {
		r := q.requests[id]
		if r.stopped { // its place is for one of those that wait
			stopping++
			continue
		}
		running[r.entry.repo.Owner]++
		if isLong(r) || p.slow && r.slow {
			most++
		}
	}
	var have []int // under way of the owners of those that wait before each
	of := maps.Clone(running)
	for _, w := range waiting {
		have = append(have, of[w.owner])
		of[w.owner]++
	}
	slices.Sort(have)
	have = have[min(len(have), max(0, stopping)):]
	for most > 0 && len(have) > 0 {
		long := q.long(now, p, isLong, running)
		i := slices.IndexFunc(long, func(id RequestID) bool { return running[q.requests[id].entry.repo.Owner] > have[0] })
		if i < 0 {
			return
		}
		running[q.requests[long[i]].entry.repo.Owner]--
		q.stop(long[i])
		most, have = most-1, have[1:]
	}
}

// stop has a request end before it comes to anything. The next one for its repository there has longer.
func (q *Queue) stop(id RequestID) {
	r := q.requests[id]
	r.stopped = true
	r.entry.stops[r.url]++
	q.effects = append(q.effects, Stop{id})
}

// pools are all that somebody waits for.
func (q *Queue) pools(now time.Time) (all []pool) {
	var attempts, slow, left, second []RequestID
	for _, id := range slices.Sorted(maps.Keys(q.requests)) {
		r := q.requests[id]
		switch {
		case r.left:
			left = append(left, id)
		case r.second:
			second = append(second, id)
		default:
			attempts = append(attempts, id)
			if r.slow || r.isLong(now) {
				slow = append(slow, id)
			}
		}
	}
	add := func(p pool) {
		if p.full() {
			all = append(all, p)
		}
	}
	if q.attempts >= q.cfg.MaxAttempts || len(slow) >= q.share() {
		quick, others := q.waiting(now)
		add(pool{places: q.cfg.MaxAttempts, held: attempts, waiting: quick, slow: true})
		add(pool{places: q.share(), held: slow, waiting: others})
	}
	if q.left >= q.share() {
		add(pool{places: q.share(), held: left, waiting: q.waitingAtDomains(now)})
	}
	if q.seconds >= q.share() {
		add(pool{places: q.share(), held: second, waiting: q.waitingToHedge(now)})
	}
	for _, p := range q.sites(now) {
		add(p)
	}
	return all
}

// waiting returns the repositories whose attempt is due, those that are not slow, which count as new, and the others.
func (q *Queue) waiting(now time.Time) (quick, slow []waiter) {
	running := q.running()
	waiters := func(all []due, isNew bool) (out []waiter) {
		for _, d := range all {
			if running[d.e.repo.Owner] < q.most() {
				out = append(out, waiter{d.e.repo.Owner, isNew})
			}
		}
		return out
	}
	others, behind := q.ready(now, q.longSites(now))
	return waiters(others, true), waiters(behind, false)
}

// waitingAtDomains returns what was left to domains that would be asked now.
func (q *Queue) waitingAtDomains(now time.Time) (out []waiter) {
	for _, d := range q.domains {
		if len(d.turns) > 0 && d.open(now) && !d.broken.Waits(now) {
			out = append(out, d.waiters(q.mayAsk(now))...)
		}
	}
	return out
}

// half is that of a site whose servers have delivered, or the other one.
type half struct {
	site      string
	delivered bool
}

// sites are the pools of those that have no place for what waits. Domains that have delivered have another one.
func (q *Queue) sites(now time.Time) (all []pool) {
	pools := make(map[half]*pool)
	var full []*domain
	for _, d := range q.domains {
		if len(d.turns) == 0 || !d.full() || !d.rateAllows(now) || d.broken.Waits(now) {
			continue
		}
		full = append(full, d)
		p := pools[d.half()]
		if p == nil {
			p = &pool{places: d.limit.Concurrent, site: true}
			pools[d.half()] = p
		}
		for id, r := range q.requests {
			if (half{r.site, r.known} == d.half() || q.domain(r.url) == d) && !slices.Contains(p.held, id) {
				p.held = append(p.held, id)
			}
		}
	}
	for at, p := range pools {
		long := 0
		for _, id := range p.held {
			if now.Sub(q.requests[id].at) >= slowAfter {
				long++
			}
		}
		if slices.Sort(p.held); long <= p.lasting() {
			delete(pools, at) // nobody gives way, however many wait
		}
	}
	for _, d := range full {
		if p := pools[d.half()]; p != nil {
			p.waiting = append(p.waiting, d.waiters(q.mayAsk(now))...)
		}
	}
	order := func(a, b half) int {
		return cmp.Or(cmp.Compare(a.site, b.site), cmp.Compare(btoi(a.delivered), btoi(b.delivered)))
	}
	for _, at := range slices.SortedFunc(maps.Keys(pools), order) {
		all = append(all, *pools[at])
	}
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// waitingToHedge returns the attempts that would ask a second server now.
func (q *Queue) waitingToHedge(now time.Time) (out []waiter) {
	for _, e := range q.active {
		if u, may := q.second(now, e); may && q.hasRoom(e) {
			out = append(out, waiter{e.repo.Owner, e.stops[u] == 0})
		}
	}
	return out
}

// unblock has a repository asked for at a server that has delivered, where all its requests are others that bring little.
func (q *Queue) unblock(now time.Time) {
	for _, d := range q.domains {
		if len(d.turns) == 0 || d.delivered == 0 || !d.open(now) || d.broken.Waits(now) {
			continue
		}
		for _, t := range d.turns {
			if q.underWay[t.entry.repo] >= AtOnce && slices.ContainsFunc(t.urls, t.entry.isOwn) {
				q.makeRoom(now, t.entry)
			}
		}
	}
}

// makeRoom has a request of a repository end that brings little, if one does, for another server. It is asked again.
func (q *Queue) makeRoom(now time.Time, e *entry) {
	if id, ok := q.hopeless(now, e); ok {
		q.stop(id)
		q.requests[id].aside = true
	}
}

// hopeless returns the request of a repository that brings least of those that bring little, if none was stopped. What brings much is
// what is wanted.
func (q *Queue) hopeless(now time.Time, e *entry) (worst RequestID, ok bool) {
	for id, r := range q.requests {
		if r.entry.repo != e.repo {
			continue
		}
		if r.stopped {
			return 0, false
		}
		if !r.bringsLittle(now) {
			continue
		}
		w := q.requests[worst]
		if w == nil || cmp.Or(cmp.Compare(r.pace(), w.pace()), cmp.Compare(btoi(r.known), btoi(w.known)), cmp.Compare(id, worst)) < 0 {
			worst, ok = id, true
		}
	}
	return worst, ok
}

// givesWay returns when a request begins to take long, if somebody waits for its place, or may; false if none does.
func (q *Queue) givesWay(now time.Time) (at time.Time, ok bool) {
	if !q.anyWaits(now) {
		return at, false
	}
	for _, r := range q.requests {
		if by, may := r.longAt(now); may && (!ok || by.Before(at)) {
			at, ok = by, true
		}
	}
	return at, ok
}

// anyWaits reports whether somebody waits for a place of some pool.
func (q *Queue) anyWaits(now time.Time) bool {
	if q.seconds >= q.share() {
		return true
	}
	for _, d := range q.domains {
		if len(d.turns) > 0 {
			return true
		}
	}
	for _, e := range q.repos {
		if !e.running && !now.Before(e.due) {
			return true
		}
	}
	return false
}
