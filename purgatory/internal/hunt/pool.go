package hunt

import (
	"maps"
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

// pools are all that somebody waits for.
func (q *Queue) pools(now time.Time) (all []pool) {
	var attempts, slow, left, second []RequestID
	for _, id := range slices.Sorted(maps.Keys(q.requests.all)) {
		r := q.requests.all[id]
		switch r.place {
		case leftToDomain:
			left = append(left, id)
		case besidesAttempt:
			second = append(second, id)
		case ofAttempt:
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
	if q.requests.left >= q.share() {
		add(pool{places: q.share(), held: left, waiting: q.servers.waiting(now, q.requests.mayAsk(now))})
	}
	if q.requests.second >= q.share() {
		add(pool{places: q.share(), held: second, waiting: q.waitingToHedge(now)})
	}
	for _, p := range q.servers.pools(now, &q.requests) {
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
	others, behind := q.ready(now, q.requests.longSites(now))
	return waiters(others, true), waiters(behind, false)
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
	for _, d := range q.servers.domains {
		if len(d.turns) == 0 || d.delivered == 0 || !d.open(now) || d.broken.Waits(now) {
			continue
		}
		for _, t := range d.turns {
			if q.requests.ofRepo[t.entry.repo] >= AtOnce && slices.ContainsFunc(t.urls, t.entry.isOwn) {
				q.makeRoom(now, t.entry)
			}
		}
	}
}

// makeRoom has a request of a repository end that brings little, if one does, for another server. It is asked again.
func (q *Queue) makeRoom(now time.Time, e *entry) {
	if id, ok := q.requests.hopeless(now, e); ok {
		q.requests.stop(id)
		q.requests.all[id].aside = true
		q.effects = append(q.effects, Stop{id})
	}
}

// anyWaits reports whether somebody waits for a place of some pool.
func (q *Queue) anyWaits(now time.Time) bool {
	if q.requests.second >= q.share() {
		return true
	}
	for _, d := range q.servers.domains {
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
