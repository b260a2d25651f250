package purgatory

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// workQueue decides which identifier is surveyed next, or which repository is released next. Slots
// are granted to strangers in turn. A failed job is repeated after a doubling wait. The engine owns
// the queue.
type workQueue[K comparable] struct {
	strangerOf func(K) limit.Stranger
	granted    func(k K, in lane, place *limit.Slot) // called on any goroutine when a job gets a slot
	places     [2]*limit.Slots                       // by lane
	jobs       map[K]*job                            // wanted, running or failed jobs
	retryNext  time.Time                             // earliest repetition; zero: no failed job
}

type job struct {
	wanted [2]bool            // by lane; a running job runs again afterwards
	queued [2]bool            // waits for a slot
	why    [2]refplan.Reasons // of wanted
	place  *limit.Slot        // nil: not running
	in     lane               // of place

	failures int             // consecutive failures
	retryAt  time.Time       // zero: running or not failed
	retryWhy refplan.Reasons // reasons of the failed runs
	slow     bool            // the last run used up its time budget
}

// lane is one of two separate sets of slots.
type lane uint8

// A release that used up its time budget, or that would move very many refs, is repeated in the
// slow lane. Owners choose how long their releases take, by the number of objects and refs.
const (
	quick lane = iota
	slow
)

// quickMoves is the maximum number of refs that a release in the quick lane moves, which takes
// about 0.1 s. For thousands of refs git writes as many files, which takes seconds.
const quickMoves = 100

type budget struct {
	share time.Duration // time of git in the repository, without waits for other releases
	moves int           // refs in one transaction; 0: any number
}

func (in lane) budget(timeout time.Duration) budget {
	if in == quick {
		return budget{share: timeout / lockShare, moves: quickMoves}
	}
	return budget{share: timeout}
}

// want queues a job. A running job runs again afterwards.
func (q *workQueue[K]) want(k K, why refplan.Reasons, in lane) {
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

func (q *workQueue[K]) job(k K) *job {
	j := q.jobs[k]
	if j == nil {
		j = new(job)
		q.jobs[k] = j
	}
	return j
}

func (q *workQueue[K]) enqueue(k K, j *job, in lane) {
	j.queued[in] = true
	q.places[in].Queue(q.strangerOf(k), 1, func(place *limit.Slot) { q.granted(k, in, place) })
}

// begin starts a job that has a slot, and returns its reasons. If the job is running in the other
// lane, begin releases the slot and returns false.
func (q *workQueue[K]) begin(k K, in lane, place *limit.Slot) (why refplan.Reasons, ok bool) {
	j := q.jobs[k]
	j.queued[in] = false
	if j.place != nil {
		place.Release()
		return why, false
	}
	why = j.why[in].And(j.retryWhy)
	j.wanted[in], j.why[in] = false, refplan.Reasons{}
	j.place, j.in = place, in
	j.retryAt, j.retryWhy = time.Time{}, refplan.Reasons{}
	return why, true
}

// end ends a job, and returns its lane. The caller calls succeeded, failed or want next.
func (q *workQueue[K]) end(k K) lane {
	j := q.jobs[k]
	j.place.Release()
	j.place = nil
	for _, in := range []lane{quick, slow} {
		if j.wanted[in] && !j.queued[in] {
			q.enqueue(k, j, in)
		}
	}
	q.tidy(k)
	return j.in
}

// tidy deletes a job without state.
func (q *workQueue[K]) tidy(k K) {
	if j := q.jobs[k]; j.place == nil && j.wanted == [2]bool{} && j.queued == [2]bool{} && j.failures == 0 && !j.slow {
		delete(q.jobs, k)
	}
}

// succeeded resets the failures of a job.
func (q *workQueue[K]) succeeded(k K) {
	j := q.job(k)
	j.failures, j.retryAt, j.retryWhy, j.slow = 0, time.Time{}, refplan.Reasons{}, false
	q.tidy(k)
}

// failed schedules the repetition of a job.
func (q *workQueue[K]) failed(k K, why refplan.Reasons, now time.Time) {
	j := q.job(k)
	j.failures++
	j.retryWhy = j.retryWhy.And(why)
	j.retryAt = now.Add(backoff.Doubled(retryFirst, retryMost, j.failures))
	q.expect(j)
}

func (q *workQueue[K]) expect(j *job) {
	if !j.retryAt.IsZero() && (q.retryNext.IsZero() || j.retryAt.Before(q.retryNext)) {
		q.retryNext = j.retryAt
	}
}

// faults returns the number of consecutive failures of a job that did not use up its time budget.
func (q *workQueue[K]) faults(k K) int {
	if j := q.jobs[k]; j != nil && !j.slow {
		return j.failures
	}
	return 0
}

// setSlow records whether a job used up its time budget. If so, the job is repeated in the slow
// lane.
func (q *workQueue[K]) setSlow(k K, is bool) { q.job(k).slow = is }

// retry queues the failed jobs whose wait is over.
func (q *workQueue[K]) retry(now time.Time) {
	if q.retryNext.IsZero() || now.Before(q.retryNext) {
		return
	}
	q.retryNext = time.Time{}
	for k, j := range q.jobs {
		if !j.retryAt.IsZero() && !now.Before(j.retryAt) {
			j.retryAt = time.Time{}
			in := quick
			if j.slow {
				in = slow
			}
			q.want(k, j.retryWhy, in)
		}
		q.expect(j)
	}
}

// newSurveyQueue returns the queue of surveys, in order of arrival, because a survey runs no git.
func newSurveyQueue(places int, granted func(surveyTurn)) *workQueue[string] {
	return &workQueue[string]{
		strangerOf: func(identifier string) limit.Stranger { return limit.Stranger{ID: identifier} },
		granted:    func(identifier string, _ lane, place *limit.Slot) { granted(surveyTurn{identifier, place}) },
		places:     [2]*limit.Slots{quick: limit.NewSlots(int64(places), 1)},
		jobs:       make(map[string]*job),
	}
}

// newReleaseQueue returns the queue of releases, with places slots in the quick lane and half as
// many in the slow lane. An owner has at most half of the slots.
func newReleaseQueue(places int, granted func(releaseTurn)) *workQueue[graspsync.RepoRef] {
	q := &workQueue[graspsync.RepoRef]{
		strangerOf: func(ref graspsync.RepoRef) limit.Stranger { return limit.Stranger{ID: ref.Owner.String()} },
		granted:    func(ref graspsync.RepoRef, in lane, place *limit.Slot) { granted(releaseTurn{ref, in, place}) },
		jobs:       make(map[graspsync.RepoRef]*job),
	}
	for in, n := range map[lane]int{quick: places, slow: max(1, places/2)} {
		q.places[in] = limit.NewSlots(int64(n), int64(max(1, n/2)))
	}
	return q
}
