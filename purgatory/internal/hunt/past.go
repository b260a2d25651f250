package hunt

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
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

// Restore takes over what an earlier process left, before the first Step: a restart
// must not have anybody asked sooner. All of a domain's recent requests count as made
// when the last one was. What lies further in the future than it can, since the clock
// was set back, is corrected.
func (q *Queue) Restore(now time.Time, repos []PastRepo, domains []PastDomain) {
	for _, r := range repos {
		q.past[r.Repo] = backoff.Streak{Times: r.Attempts, Until: r.Next}.Restored(now, q.cfg.MaxBackoff)
	}
	for _, p := range domains {
		d := q.domainOf(p.Domain)
		d.usedAt = backoff.Earlier(p.Last, now)
		d.broken = backoff.Streak{Times: p.Failures, Until: p.BrokenUntil}.Restored(now, q.cfg.BrokenMax)
		if now.Sub(d.usedAt) < window {
			for range min(p.Recent, d.limit.PerMinute) {
				d.starts = append(d.starts, d.usedAt)
			}
		}
	}
}

// Broken returns how often in a row a domain was found to be broken for good, and
// until when it is left alone.
func (q *Queue) Broken(a graspsync.HostPort) (failures int, until time.Time) {
	if d := q.domains[a]; d != nil {
		return d.broken.Times, d.broken.Until
	}
	return 0, time.Time{}
}
