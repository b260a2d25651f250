// Package workqueue decides which identifier is surveyed next, or which repository is released next.
package workqueue

import (
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Queue is a queue of jobs. Strangers get slots in turn. A failed job is repeated after a doubling
// wait. A Queue is not safe for concurrent use.
type Queue[K comparable] struct {
	slots      *limit.Slots
	strangerOf func(K) limit.Stranger
	granted    func(k K, slot *limit.Slot)
	jobs       map[K]*job // wanted, running or failed jobs
	retryNext  time.Time  // earliest repetition; zero: no failed job
}

// The wait after a failure, and its maximum after doubling.
const (
	retryFirst = time.Second
	RetryMost  = 5 * time.Minute
)

// New returns a queue. granted is called on any goroutine when a job gets a slot. The caller then
// calls Begin.
func New[K comparable](slots *limit.Slots, strangerOf func(K) limit.Stranger, granted func(k K, slot *limit.Slot)) *Queue[K] {
	return &Queue[K]{slots: slots, strangerOf: strangerOf, granted: granted, jobs: make(map[K]*job)}
}

type job struct {
	wanted bool            // it waits for a slot or, while it is running, for its end
	why    refplan.Reasons // of the next run
	slot   *limit.Slot     // nil: not running
	retry  backoff.Streak  // failures; Until is zero while the job is running or waits for a slot
}

// Want queues a job. A running job runs again afterwards.
func (q *Queue[K]) Want(k K, why refplan.Reasons) {
	j := q.jobs[k]
	if j == nil {
		j = new(job)
		q.jobs[k] = j
	}
	j.why = j.why.And(why)
	if !j.wanted {
		j.wanted = true
		q.enqueue(k, j)
	}
}

func (q *Queue[K]) enqueue(k K, j *job) {
	if j.slot == nil {
		q.slots.Queue(q.strangerOf(k), 1, func(slot *limit.Slot) { q.granted(k, slot) })
	}
}

// Begin starts a job that has a slot. It returns the reasons, and the number of consecutive
// failures.
func (q *Queue[K]) Begin(k K, slot *limit.Slot) (why refplan.Reasons, failures int) {
	j := q.jobs[k]
	why = j.why
	j.wanted, j.why, j.slot, j.retry.Until = false, refplan.Reasons{}, slot, time.Time{}
	return why, j.retry.Times
}

// End ends a job. A failed job is repeated for the reasons why.
func (q *Queue[K]) End(k K, now time.Time, failed bool, why refplan.Reasons) {
	j := q.jobs[k]
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
		q.enqueue(k, j)
	case !failed:
		delete(q.jobs, k)
	}
}

func (q *Queue[K]) expect(j *job) {
	if !j.retry.Until.IsZero() && (q.retryNext.IsZero() || j.retry.Until.Before(q.retryNext)) {
		q.retryNext = j.retry.Until
	}
}

// Fails reports whether the last run of a job failed.
func (q *Queue[K]) Fails(k K) bool { return q.jobs[k] != nil && q.jobs[k].retry.Times > 0 }

// NextRetry returns the earliest repetition, or the zero time.
func (q *Queue[K]) NextRetry() time.Time { return q.retryNext }

// Retry queues the failed jobs whose wait is over.
func (q *Queue[K]) Retry(now time.Time) {
	if q.retryNext.IsZero() || now.Before(q.retryNext) {
		return
	}
	q.retryNext = time.Time{}
	for k, j := range q.jobs {
		if !j.retry.Until.IsZero() && !now.Before(j.retry.Until) {
			j.retry.Until = time.Time{}
			q.Want(k, j.why)
		}
		q.expect(j)
	}
}
