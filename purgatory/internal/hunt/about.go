package hunt

import (
	"time"

	"github.com/graspsync/graspsync"
)

// About is where a repository is in the queue, for people.
type About struct {
	Waits    bool      // it is hunted for
	Attempts int       // that did not complete, in a row
	Running  bool      // an attempt is under way
	Due      time.Time // when the next one is, of one that is not running
	Servers  map[graspsync.CloneURL]AboutServer
}

// AboutServer is what is to come of one of its URLs.
type AboutServer struct {
	Asking      bool      // it is being asked
	Queued      bool      // the repository waits for its turn with it
	Opens       time.Time // when it may be asked again, of one that was asked too often; zero: now
	BrokenUntil time.Time // it is left alone until then; zero: it is not
}

// About returns where a repository is.
func (q *Queue) About(now time.Time, repo graspsync.RepoRef) (a About) {
	e := q.repos[repo]
	if e == nil {
		return a
	}
	a = About{Waits: true, Attempts: e.number, Running: e.running, Due: e.due, Servers: make(map[graspsync.CloneURL]AboutServer, len(e.urls))}
	asking := make(map[graspsync.CloneURL]bool)
	for _, r := range q.requests.all {
		if r.entry == e {
			asking[r.url] = true
		}
	}
	for _, u := range e.urls {
		s := AboutServer{Asking: asking[u]}
		_, s.Queued = e.queued[u]
		if d := q.servers.domains[u.HostPort()]; d != nil {
			if d.broken.Waits(now) {
				s.BrokenUntil = d.broken.Until
			}
			if at, waits := d.reopens(now); waits {
				s.Opens = at
			}
		}
		a.Servers[u] = s
	}
	return a
}
