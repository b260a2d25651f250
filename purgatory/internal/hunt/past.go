package hunt

import (
	"time"

	"github.com/graspsync/graspsync"
)

// PastRepo is what an earlier process left of a repository that it hunted for.
type PastRepo struct {
	Repo     graspsync.RepoRef
	Attempts int       // that did not complete, in a row
	Next     time.Time // when the next one was due
}

// PastDomain is what an earlier process left of a domain.
type PastDomain struct {
	Domain      graspsync.HostPort
	Last        time.Time // when it was asked last
	Recent      int       // requests in the minute before that
	Failures    int       // in a row that were Broken
	BrokenUntil time.Time
}

// past is what there is of a repository that is not in the queue yet.
type past struct {
	attempts int
	next     time.Time
}

// Restore takes over what an earlier process left, before the first Step: a restart
// must not have anybody asked sooner. All of a domain's recent requests count as made
// when the last one was. What lies further in the future than it can, since the clock
// was set back, is corrected.
func (q *Queue) Restore(now time.Time, repos []PastRepo, domains []PastDomain) {
	for _, r := range repos {
		q.past[r.Repo] = past{attempts: max(0, min(r.Attempts, mostCount)), next: earlier(r.Next, now.Add(q.cfg.MaxBackoff))}
	}
	for _, p := range domains {
		d := q.domainOf(p.Domain)
		d.usedAt = earlier(p.Last, now)
		d.failures, d.brokenUntil = max(0, min(p.Failures, mostCount)), earlier(p.BrokenUntil, now.Add(q.cfg.BrokenMax))
		if now.Sub(d.usedAt) < window {
			for range min(p.Recent, d.limit.PerMinute) {
				d.starts = append(d.starts, d.usedAt)
			}
		}
	}
}

// mostCount is what is believed of a number on a disk: there doubling has ended long
// before.
const mostCount = 1000

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Broken returns how often in a row a domain was found to be broken for good, and
// until when it is left alone.
func (q *Queue) Broken(a graspsync.HostPort) (failures int, until time.Time) {
	if d := q.domains[a]; d != nil {
		return d.failures, d.brokenUntil
	}
	return 0, time.Time{}
}
