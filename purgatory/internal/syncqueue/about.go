package syncqueue

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// About is the state of a repository in the queue.
type About struct {
	Waits    bool      // the repository is in the queue
	Attempts int       // consecutive incomplete attempts
	Running  bool      // an attempt is under way
	Due      time.Time // next attempt
	Servers  map[graspsync.CloneURL]AboutServer
}

// AboutServer is the state of one URL.
type AboutServer struct {
	Asking      bool      // a request is in flight
	Queued      bool      // the URL waits for its domain
	Opens       time.Time // earliest request within the rate of its domain; zero: now
	BrokenUntil time.Time // end of the pause of a broken domain; zero: no pause
}

// About returns the state of a repository.
func (q *SyncQueue) About(now time.Time, repo graspsync.RepoRef) (a About) {
	e := q.repos[repo]
	if e == nil {
		return a
	}
	a = About{Waits: true, Attempts: e.number, Running: e.active, Due: e.due, Servers: make(map[graspsync.CloneURL]AboutServer)}
	for u := range e.targets {
		s := AboutServer{Asking: q.isAsking(e, u), Queued: slices.Contains(e.queued, u)}
		if d := q.throttle.domains[u.HostPort()]; d != nil {
			if d.broken.Waits(now) {
				s.BrokenUntil = d.broken.Until
			}
			if at := d.nextAllowed(now); at.After(now) {
				s.Opens = at
			}
		}
		a.Servers[u] = s
	}
	return a
}

// hopelessAfter is the number of incomplete attempts after which a repository that owes no request
// is not Hopeful.
const hopelessAfter = 3

// Hopeful reports whether the missing data of a repository may be found soon.
func (q *SyncQueue) Hopeful(now time.Time, repo graspsync.RepoRef) bool {
	e := q.repos[repo]
	return e != nil && (e.number < hopelessAfter || q.Owes(now, repo, e.since))
}

// Owes reports whether a server of a repository waits for its turn and was not asked since a time.
func (q *SyncQueue) Owes(now time.Time, repo graspsync.RepoRef, since time.Time) bool {
	e := q.repos[repo]
	if e == nil {
		return false
	}
	own, _ := q.inFlight(e)
	for u, t := range e.targets {
		waits := slices.Contains(e.queued, u) || !e.active && !now.Before(e.due) || e.active && own == 0 && !t.tried
		if waits && t.asked.Before(since) && !q.throttle.of(u.HostPort()).broken.Waits(now) {
			return true
		}
	}
	return false
}

// Broken returns the consecutive failures of a broken domain, and the end of its pause.
func (q *SyncQueue) Broken(a graspsync.HostPort) (pause backoff.Streak) {
	if d := q.throttle.domains[a]; d != nil {
		pause = d.broken
	}
	return pause
}

// PastDomain is a record of an earlier process.
type PastDomain struct {
	Domain graspsync.HostPort
	Last   time.Time      // last request
	Recent int            // requests in the minute before Last
	Broken backoff.Streak // its pause
}

// Restore loads the records of an earlier process before the first Step, so that a restart causes
// no earlier requests. The clock may have been set back.
func (q *SyncQueue) Restore(now time.Time, repos map[graspsync.RepoRef]backoff.Streak, domains []PastDomain) {
	for repo, attempts := range repos {
		q.past[repo] = attempts.Restored(now, maxPatience)
	}
	for _, p := range domains {
		d := q.throttle.of(p.Domain)
		d.usedAt = backoff.Earlier(p.Last, now)
		d.broken = p.Broken.Restored(now, q.cfg.BrokenMax)
		if now.Sub(d.usedAt) < window {
			for range min(p.Recent, d.limit.PerMinute) {
				d.starts = append(d.starts, d.usedAt)
			}
		}
	}
}
