// Package workqueue decides which identifier is surveyed next, or which repository is released next.
package workqueue

import (
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Queue is a queue of jobs. Slots are granted to strangers in turn. A failed job is repeated after a
// doubling wait. A Queue is not safe for concurrent use.
type Queue[K comparable] struct {
	places     [2]*limit.Slots // by lane
	strangerOf func(K) limit.Stranger
	granted    func(k K, in Lane, place *limit.Slot)
	jobs       map[K]*job // wanted, running or failed jobs
	retryNext  time.Time  // earliest repetition; zero: no failed job
}

// The wait after a failure, and its maximum after doubling.
const (
	retryFirst = time.Second
	RetryMost  = 5 * time.Minute
)

// New returns a queue with slots in each lane. granted is called on any goroutine when a job gets a
// slot. The caller then calls Begin.
func New[K comparable](quick, slow *limit.Slots, strangerOf func(K) limit.Stranger, granted func(k K, in Lane, place *limit.Slot)) *Queue[K] {
	return &Queue[K]{places: [2]*limit.Slots{quick, slow}, strangerOf: strangerOf, granted: granted, jobs: make(map[K]*job)}
}

type job struct {
	wanted [2]bool            // by lane; a running job runs again afterwards
	queued [2]bool            // waits for a slot
	why    [2]refplan.Reasons // of wanted
	place  *limit.Slot        // nil: not running
	in     Lane               // of place

	retry    backoff.Streak  // Until is zero while the job is running or queued
	retryWhy refplan.Reasons // reasons of the failed runs
	slow     bool            // the last run used up its time budget
}

// Lane is one of two separate sets of slots.
type Lane uint8

// A release that used up its time budget, or that would move very many refs, is repeated in the
// slow lane. Owners choose how long their releases take, by the number of objects and refs.
const (
	Quick Lane = iota
	Slow
)

// Want queues a job. A running job runs again afterwards.
func (q *Queue[K]) Want(k K, why refplan.Reasons, in Lane) {
	j := q.job(k)
	if j.wanted[in] {
		j.why[in] = j.why[in].And(why)
		return
	}
	j.wanted[in], j.why[in] = true, why
	if j.place == nil {
		q.enqueue(k, j, in)
	}
}

func (q *Queue[K]) job(k K) *job {
	j := q.jobs[k]
	if j == nil {
		j = new(job)
		q.jobs[k] = j
	}
	return j
}

func (q *Queue[K]) enqueue(k K, j *job, in Lane) {
	j.queued[in] = true
	q.places[in].Queue(q.strangerOf(k), 1, func(place *limit.Slot) { q.granted(k, in, place) })
}

// Begin starts a job that has a slot, and returns its reasons. If the job is running in the other
// lane, Begin releases the slot and returns false.
func (q *Queue[K]) Begin(k K, in Lane, place *limit.Slot) (why refplan.Reasons, ok bool) {
	j := q.jobs[k]
	j.queued[in] = false
	if j.place != nil {
		place.Release()
		return why, false
	}
	why = j.why[in].And(j.retryWhy)
	j.wanted[in], j.why[in] = false, refplan.Reasons{}
	j.place, j.in = place, in
	j.retry.Until, j.retryWhy = time.Time{}, refplan.Reasons{}
	return why, true
}

// End ends a job, and returns its lane. The caller calls Succeeded, Failed or Want next.
func (q *Queue[K]) End(k K) Lane {
	j := q.jobs[k]
	j.place.Release()
	j.place = nil
	for _, in := range []Lane{Quick, Slow} {
		if j.wanted[in] && !j.queued[in] {
			q.enqueue(k, j, in)
		}
	}
	q.tidy(k)
	return j.in
}

// tidy deletes a job without state.
func (q *Queue[K]) tidy(k K) {
	if j := q.jobs[k]; j.place == nil && j.wanted == [2]bool{} && j.queued == [2]bool{} && j.retry.Times == 0 && !j.slow {
		delete(q.jobs, k)
	}
}

// Succeeded resets the failures of a job.
func (q *Queue[K]) Succeeded(k K) {
	j := q.job(k)
	j.retry, j.retryWhy, j.slow = backoff.Streak{}, refplan.Reasons{}, false
	q.tidy(k)
}

// Failed schedules the repetition of a job.
func (q *Queue[K]) Failed(k K, why refplan.Reasons, now time.Time) {
	j := q.job(k)
	j.retry.Again(now, retryFirst, RetryMost)
	j.retryWhy = j.retryWhy.And(why)
	q.expect(j)
}

func (q *Queue[K]) expect(j *job) {
	if !j.retry.Until.IsZero() && (q.retryNext.IsZero() || j.retry.Until.Before(q.retryNext)) {
		q.retryNext = j.retry.Until
	}
}

// Faults returns the number of consecutive failures of a job that did not use up its time budget.
func (q *Queue[K]) Faults(k K) int {
	if j := q.jobs[k]; j != nil && !j.slow {
		return j.retry.Times
	}
	return 0
}

// SetSlow records whether a job used up its time budget. If so, the job is repeated in the slow
// lane.
func (q *Queue[K]) SetSlow(k K, is bool) { q.job(k).slow = is }

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
			in := Quick
			if j.slow {
				in = Slow
			}
			q.Want(k, j.retryWhy, in)
		}
		q.expect(j)
	}
}
