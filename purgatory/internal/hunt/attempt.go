package hunt

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// askAgain has an attempt ask those servers again that have delivered: it may ask slow ones for hours, which any pull
// request can name, and what is wanted now may be with the others.
func (q *Queue) askAgain(e *entry) {
	for _, u := range e.urls {
		busy := q.requests.asks(e, u)
		if d := q.servers.domains[u.HostPort()]; !busy && d != nil && d.delivered > 0 && !d.slow {
			delete(e.tried, u)
		}
	}
}

// isTried reports whether an attempt has asked a server, and does not ask it again by now.
func (q *Queue) isTried(now time.Time, e *entry, u graspsync.CloneURL) bool {
	if _, tried := e.tried[u]; !tried {
		return false
	}
	at, again := q.triesAgain(e, u)
	return !again || now.Before(at)
}

// triesAgain returns when an attempt asks a server again that it has tried: one that has delivered, and is not named by strangers only, as
// often as by attempts that are over soon. What else it asks may take hours. False: it does not.
func (q *Queue) triesAgain(e *entry, u graspsync.CloneURL) (time.Time, bool) {
	t := e.tried[u]
	busy := q.requests.asks(e, u)
	_, queued := e.queued[u]
	d := q.servers.domains[u.HostPort()]
	if busy || queued || d == nil || d.delivered == 0 || !e.isOwn(u) {
		return time.Time{}, false
	}
	return backoff.Later(t.at, e.asked[u]).Add(q.backoff(e.repo, e.number+t.times)), true
}

// attempt begins an attempt at a repository, or goes on with it.
func (q *Queue) attempt(now time.Time, e *entry) {
	e.running, q.active[e.repo] = true, e
	if e.tried == nil {
		e.tried, e.further = make(map[graspsync.CloneURL]try), make(map[graspsync.CloneURL]int)
	}
	q.attempts++
	q.advance(now, e)
}

// advance has an attempt ask its next URL, or ends it. URLs that can't be asked now are left to their domains.
func (q *Queue) advance(now time.Time, e *entry) {
	may := q.requests.mayAsk(now)
	for _, u := range q.next(now, e) {
		e.tries(now, u)
		e.looked = 0
		_, queued := e.queued[u]
		busy := q.requests.asks(e, u)
		d := q.servers.domain(u)
		switch {
		case queued, busy, d.broken.Waits(now):
		case may(e, u) && d.hasRoom(now, may):
			e.asking = q.fetch(now, e, u, ofAttempt)
			return
		default:
			e.queued[u] = now
			d.enter(u, e)
		}
	}
	e.number++
	wait := q.backoff(e.repo, e.number)
	if e.again {
		e.number, wait = 0, min(wait, e.delay)
	}
	q.endAttempt(e, now.Add(wait))
}

func (q *Queue) endAttempt(e *entry, next time.Time) {
	if r := q.requests.all[e.asking]; r != nil {
		r.loose = true
	} else if e.running {
		q.attempts--
	}
	q.effects = append(q.effects, Attempted{Repo: e.repo, Number: max(1, e.number), Next: next})
	e.running, e.again, e.asking, e.tried, e.due, e.looked = false, false, 0, nil, next, 0
	delete(q.active, e.repo)
}

// next returns what an attempt asks next: in turn what it has not tried, and what it tries again, whichever of that was tried longest ago.
func (q *Queue) next(now time.Time, e *entry) []graspsync.CloneURL {
	var fresh, again []graspsync.CloneURL
	for _, u := range q.servers.order(e.urls) {
		_, tried := e.tried[u]
		switch {
		case !tried:
			fresh = append(fresh, u)
		case !q.isTried(now, e, u):
			again = append(again, u)
		}
	}
	slices.SortStableFunc(again, func(a, b graspsync.CloneURL) int { return e.tried[a].at.Compare(e.tried[b].at) })
	if e.old {
		return append(fresh, again...)
	}
	return append(again, fresh...)
}

// backoff is the wait after an attempt: the same whenever it is asked for.
func (q *Queue) backoff(repo graspsync.RepoRef, n int) time.Duration {
	wait := backoff.Doubled(q.cfg.Backoff, q.cfg.MaxBackoff, n)
	if q.cfg.Seed == 0 {
		return wait
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(repo.String() + strconv.FormatUint(q.cfg.Seed, 16) + " " + strconv.Itoa(n))) // never fails
	return wait + time.Duration(float64(wait)*float64(h.Sum64()%1024)/(10*1024))
}

// A server that takes its time does not keep an attempt from finding a faster one.
const hedgeAfter = 30 * time.Second

// hedge has an attempt ask a second server, on another domain, when the first one takes
// its time. That takes no place of an attempt, so that nobody waits for it. Where the repository has no place
// for one more, a request of it that brings little ends for a server that has delivered.
func (q *Queue) hedge(now time.Time, e *entry) {
	u, may := q.second(now, e)
	switch {
	case !may:
	case !q.hasRoom(e):
		q.makeRoom(now, e)
	case q.requests.second < q.share():
		e.tries(now, u)
		e.second = q.fetch(now, e, u, besidesAttempt)
	}
}

// hasRoom reports whether an attempt may ask a server besides.
func (q *Queue) hasRoom(e *entry) bool { return e.second == 0 && q.requests.ofRepo[e.repo] < AtOnce }

// second returns the server that an attempt would ask now besides the first, if there was a place; false if there is none.
func (q *Queue) second(now time.Time, e *entry) (graspsync.CloneURL, bool) {
	if at, hedges := q.hedges(e); !hedges || now.Before(at) {
		return graspsync.CloneURL{}, false
	}
	may := q.requests.mayAsk(now)
	for _, u := range q.next(now, e) {
		if d := q.servers.domain(u); q.besides(e, u) && q.requests.sharedUntil(now, e, u).IsZero() && !d.broken.Waits(now) && d.hasRoom(now, may) {
			return u, true
		}
	}
	return graspsync.CloneURL{}, false
}

// besides reports whether an attempt may ask a server while it asks another one, as far as that is not a matter of time.
func (q *Queue) besides(e *entry, u graspsync.CloneURL) bool {
	_, queued := e.queued[u]
	busy := q.requests.asks(e, u)
	if queued || busy || u.HostPort().Host == q.requests.all[e.asking].url.HostPort().Host {
		return false
	}
	if e.second == 0 && q.requests.hasPlace(e, u) {
		return true
	}
	d := q.servers.domains[u.HostPort()]
	return e.isOwn(u) && d != nil && d.delivered > 0
}

// hedges returns from when on an attempt may ask a second server, or end what it has asked of one; false if it may not.
func (q *Queue) hedges(e *entry) (time.Time, bool) {
	first, second := q.requests.all[e.asking], q.requests.all[e.second]
	switch {
	case !e.running || first == nil:
		return time.Time{}, false
	case second != nil:
		return second.at.Add(slowAfter), true
	}
	return first.at.Add(hedgeAfter), q.requests.secondsOf(e.repo.Owner) < max(1, q.share()/2)
}

// hedgesAt returns when an attempt asks a second server, or ends what it has asked of one; false if that is not a matter of time.
func (q *Queue) hedgesAt(now time.Time, e *entry) (next time.Time, ok bool) {
	from, may := q.hedges(e)
	if !may {
		return next, false
	}
	for _, u := range e.urls {
		if q.isTried(now, e, u) || !q.besides(e, u) {
			continue
		}
		if at, is := q.servers.domain(u).asksAt(now, q.requests.mayAsk(now)); is {
			at = backoff.Later(backoff.Later(at, from), q.requests.sharedUntil(now, e, u))
			if _, ends := q.requests.hopeless(now, e); !ends && !q.hasRoom(e) {
				by, may := q.requests.longAt(now, func(r *request) bool { return r.entry.repo == e.repo })
				if !may {
					continue
				}
				at = backoff.Later(at, by)
			}
			if at.After(now) && (!ok || at.Before(next)) {
				next, ok = at, true
			}
		}
	}
	return next, ok
}
