package purgatory

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// workQueue decides which identifier is surveyed next, or which repository is released next. Strangers take turns for the
// places. A failed job is repeated after a wait that doubles. The engine owns the queue.
type workQueue[K comparable] struct {
	strangerOf func(K) limit.Stranger
	granted    func(k K, in lane, place *limit.Slot) // called by any goroutine when a job has a place
	places     [2]*limit.Slots                       // by lane
	jobs       map[K]*job                            // that are wanted, under way, or failed
	retryNext  time.Time                             // no job is to be repeated before; zero: none is
}

// job is the state of a survey or a release.
type job struct {
	wanted [2]bool            // by lane; a job that is under way is done again
	queued [2]bool            // waits for a place
	why    [2]refplan.Reasons // of wanted
	place  *limit.Slot        // nil: not under way
	in     lane               // of place

	failures int             // in a row
	retryAt  time.Time       // zero: being tried, or not failed
	retryWhy refplan.Reasons // of the failed ones
	slow     bool            // it used up its share of time
}

// lane is a part of the places.
type lane uint8

// A release that used up its share of time, or that would move very many refs, is repeated in the slow lane, because the
// objects and refs of an owner decide how long a release takes.
const (
	quick lane = iota
	slow
)

// quickMoves is the maximum number of refs that a release in the quick lane moves. It takes 0.1 s or so. For a
// transaction of thousands of refs git writes as many files, for some seconds.
const quickMoves = 100

// budget is the maximum that a release may use up.
type budget struct {
	share time.Duration // of git in the repository, without the waiting for other releases
	moves int           // refs in one transaction; 0: any number
}

// budget returns the budget of a release in a lane.
func (in lane) budget(timeout time.Duration) budget {
	if in == quick {
		return budget{share: timeout / lockShare, moves: quickMoves}
	}
	return budget{share: timeout}
}

// want has a job done. A job that is under way is done again.
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

// begin records the begin of a job that has a place, and returns the reasons for it. It gives the place back and returns
// false if the same job is under way in the other lane.
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

// end records the end of a job, and returns its lane. One of succeeded, failed and want follows.
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

// tidy deletes a job that is neither wanted nor under way and that has not failed.
func (q *workQueue[K]) tidy(k K) {
	if j := q.jobs[k]; j.place == nil && j.wanted == [2]bool{} && j.queued == [2]bool{} && j.failures == 0 && !j.slow {
		delete(q.jobs, k)
	}
}

// succeeded forgets the failures of a job.
func (q *workQueue[K]) succeeded(k K) {
	j := q.job(k)
	j.failures, j.retryAt, j.retryWhy, j.slow = 0, time.Time{}, refplan.Reasons{}, false
	q.tidy(k)
}

// failed has a job repeated after a wait.
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

// setSlow records whether a job used up its share of time. If so, it is repeated in the slow lane.
func (q *workQueue[K]) setSlow(k K, is bool) { q.job(k).slow = is }

// retry has the failed jobs repeated whose wait is over.
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

// newSurveyQueue returns the queue of the surveys of identifiers. A survey runs no git, so that the first comes first.
func newSurveyQueue(places int, granted func(surveyTurn)) *workQueue[string] {
	return &workQueue[string]{
		strangerOf: func(identifier string) limit.Stranger { return limit.Stranger{ID: identifier} },
		granted:    func(identifier string, _ lane, place *limit.Slot) { granted(surveyTurn{identifier, place}) },
		places:     [2]*limit.Slots{quick: limit.NewSlots(int64(places), 1)},
		jobs:       make(map[string]*job),
	}
}

// newReleaseQueue returns the queue of the releases of repositories, with so many places, and half as many in the slow
// lane. An owner has at most half of the places.
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
