// Package workqueue decides which repository is released next, and which identifier is surveyed next.
package workqueue

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Queue is a queue of releases of repositories. A repository without owner is a survey of all
// repositories with its identifier. Owners, and identifiers of surveys, get slots in turn. A failed
// job is repeated after a doubling wait. A Queue is not safe for concurrent use.
type Queue struct {
	releases, surveys *limit.Slots
	granted           func(ref graspsync.RepoRef, slot *limit.Slot)
	jobs              map[graspsync.RepoRef]*job // wanted, running or failed jobs
	retryNext         time.Time                  // earliest repetition; zero: no failed job
}

// The wait after a failure, and its maximum after doubling.
const (
	retryFirst = time.Second
	RetryMost  = 5 * time.Minute
)

// New returns a queue for n concurrent releases, at most half of them of one owner, and n concurrent
// surveys. granted is called on any goroutine when a job gets a slot. The caller then calls Begin.
func New(n int, granted func(ref graspsync.RepoRef, slot *limit.Slot)) *Queue {
	most := int64(n)
	return &Queue{
		releases: limit.NewSlots(most, max(1, most/2)), surveys: limit.NewSlots(most, 1), granted: granted, jobs: make(map[graspsync.RepoRef]*job),
	}
}

// Survey returns the job that surveys the repositories with an identifier.
func Survey(identifier string) graspsync.RepoRef { return graspsync.RepoRef{Identifier: identifier} }

// IsSurvey reports whether a job is a survey.
func IsSurvey(ref graspsync.RepoRef) bool { return ref.Owner == graspsync.PubKey{} }

type job struct {
	wanted bool            // it waits for a slot or, while it is running, for its end
	why    refplan.Reasons // of the next run
	slot   *limit.Slot     // nil: not running
	retry  backoff.Streak  // failures; Until is zero while the job is running or waits for a slot
}

// Want queues a job. A running job runs again afterwards.
func (q *Queue) Want(ref graspsync.RepoRef, why refplan.Reasons) {
	j := q.jobs[ref]
	if j == nil {
		j = new(job)
		q.jobs[ref] = j
	}
	j.why = j.why.And(why)
	if !j.wanted {
		j.wanted = true
		q.enqueue(ref, j)
	}
}

func (q *Queue) enqueue(ref graspsync.RepoRef, j *job) {
	slots, who := q.releases, ref.Owner.String()
	if IsSurvey(ref) {
		slots, who = q.surveys, ref.Identifier
	}
	if j.slot == nil {
		slots.Queue(limit.Stranger{ID: who}, 1, func(slot *limit.Slot) { q.granted(ref, slot) })
	}
}

// Begin starts a job that has a slot. It returns the reasons, and the number of consecutive
// failures.
func (q *Queue) Begin(ref graspsync.RepoRef, slot *limit.Slot) (why refplan.Reasons, failures int) {
	j := q.jobs[ref]
	why = j.why
	j.wanted, j.why, j.slot, j.retry.Until = false, refplan.Reasons{}, slot, time.Time{}
	return why, j.retry.Times
}

// End ends a job. A failed job is repeated for the reasons why.
func (q *Queue) End(ref graspsync.RepoRef, now time.Time, failed bool, why refplan.Reasons) {
	j := q.jobs[ref]
	j.slot.Release()
	j.slot = nil
	if failed {
		j.why = j.why.And(why)
		j.retry.Again(now, retryFirst, RetryMost)
		q.expect(j)
	} else {
		j.retry = backoff.Streak{}
	}
	switch {
	case j.wanted:
		q.enqueue(ref, j)
	case !failed:
		delete(q.jobs, ref)
	}
}

func (q *Queue) expect(j *job) {
	if !j.retry.Until.IsZero() && (q.retryNext.IsZero() || j.retry.Until.Before(q.retryNext)) {
		q.retryNext = j.retry.Until
	}
}

// Fails reports whether the last run of a job failed.
func (q *Queue) Fails(ref graspsync.RepoRef) bool {
	return q.jobs[ref] != nil && q.jobs[ref].retry.Times > 0
}

// NextRetry returns the earliest repetition, or the zero time.
func (q *Queue) NextRetry() time.Time { return q.retryNext }

// Retry queues the failed jobs whose wait is over.
func (q *Queue) Retry(now time.Time) {
	if q.retryNext.IsZero() || now.Before(q.retryNext) {
		return
	}
	q.retryNext = time.Time{}
	for ref, j := range q.jobs {
		if !j.retry.Until.IsZero() && !now.Before(j.retry.Until) {
			j.retry.Until = time.Time{}
			q.Want(ref, j.why)
		}
		q.expect(j)
	}
}
