// Package workqueue decides which repository is released next, and which identifier is surveyed next.
package workqueue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Queue is a queue of releases of repositories. A repository without owner is a survey of all
// repositories with its identifier. Owners, and identifiers of surveys, get slots in turn. A failed
// job is repeated after a doubling wait. A Queue is safe for concurrent use.
type Queue struct {
	releases, surveys *limit.Slots
	wg                sync.WaitGroup

	mu sync.Mutex
	// guarded by mu
	do   func(ref graspsync.RepoRef, why refplan.Reasons, failures int) (failed bool) // nil: Run is not called or has ended
	jobs map[graspsync.RepoRef]*job                                                   // queued, running or failed
}

type job struct {
	queued, running bool            // a queued job waits for a slot or, while it is running, for its end
	checks          bool            // only hourly checks have queued it
	why             refplan.Reasons // of the next run
	failures        int             // consecutive
	repetition      *time.Timer     // after a failure
	ended           chan struct{}   // closed at the end of the next run
}

// The wait after a failure, and its maximum after doubling.
const (
	retryFirst = time.Second
	RetryMost  = 5 * time.Minute
)

// New returns a queue for n concurrent releases, at most half of them of one owner, and n concurrent
// surveys.
func New(n int) *Queue {
	most := int64(n)
	return &Queue{releases: limit.NewSlots(most, max(1, most/2)), surveys: limit.NewSlots(most, 1), jobs: make(map[graspsync.RepoRef]*job)}
}

// IsSurvey reports whether a job is a survey.
func IsSurvey(ref graspsync.RepoRef) bool { return ref.Owner == graspsync.PubKey{} }

// Run does the queued jobs until ctx ends. failures is the number of consecutive failures of a job.
func (q *Queue) Run(ctx context.Context, do func(ref graspsync.RepoRef, why refplan.Reasons, failures int) (failed bool)) {
	q.mu.Lock()
	q.do = do
	for ref, j := range q.jobs {
		q.requestSlot(ref, j)
	}
	q.mu.Unlock()
	<-ctx.Done()
	q.mu.Lock()
	q.do = nil
	q.mu.Unlock()
	q.wg.Wait()
}

// AddSurvey queues a survey.
func (q *Queue) AddSurvey(identifier string, why refplan.Reasons) {
	q.add(graspsync.RepoRef{Identifier: identifier}, why)
}

// AddRelease queues a release. A running one runs again afterwards.
func (q *Queue) AddRelease(ref graspsync.RepoRef, why refplan.Reasons) { q.add(ref, why) }

func (q *Queue) add(ref graspsync.RepoRef, why refplan.Reasons) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.jobs[ref]
	if j == nil {
		j = &job{checks: true, ended: make(chan struct{})}
		q.jobs[ref] = j
	}
	j.why, j.checks = j.why.Union(why), j.checks && why.Check
	if !j.queued {
		j.queued = true
		q.requestSlot(ref, j)
	}
}

// requestSlot requests a slot for a queued job that is not running. mu is held.
func (q *Queue) requestSlot(ref graspsync.RepoRef, j *job) {
	if q.do == nil || !j.queued || j.running {
		return
	}
	slots, who := q.releases, ref.Owner.String()
	if IsSurvey(ref) {
		slots, who = q.surveys, ref.Identifier
	}
	slots.Queue(limit.Stranger{ID: who}, 1, func(slot *limit.Slot) { q.wg.Go(func() { q.perform(ref, j, slot) }) })
}

func (q *Queue) perform(ref graspsync.RepoRef, j *job, slot *limit.Slot) {
	defer slot.Release()
	q.mu.Lock()
	do, why, failures := q.do, j.why, j.failures
	if do != nil {
		j.queued, j.running, j.why = false, true, refplan.Reasons{}
	}
	if j.repetition != nil {
		j.repetition.Stop()
	}
	q.mu.Unlock()
	if do == nil {
		return
	}
	failed := do(ref, why, failures)
	q.mu.Lock()
	defer q.mu.Unlock()
	j.running = false
	close(j.ended)
	j.ended = make(chan struct{})
	if failed {
		j.why = j.why.Union(why)
		j.failures++
		j.repetition = time.AfterFunc(backoff.Doubled(retryFirst, RetryMost, j.failures), func() { q.add(ref, refplan.Reasons{}) })
	} else {
		j.failures = 0
	}
	if q.requestSlot(ref, j); !j.queued && !failed {
		delete(q.jobs, ref)
	}
}

// Wait waits until a job has run for all earlier calls of AddRelease, or has failed twice.
func (q *Queue) Wait(ctx context.Context, ref graspsync.RepoRef) error {
	for range 3 { // one run may be under way, and another one fail
		q.mu.Lock()
		j := q.jobs[ref]
		if j == nil || !j.queued && !j.running && j.failures > 1 {
			q.mu.Unlock()
			return nil
		}
		ended := j.ended
		q.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return fmt.Errorf("waiting for a release: %w", context.Cause(ctx))
		}
	}
	return nil
}

// Unfinished returns the repositories whose releases are not only hourly checks, and have not ended or
// have failed.
func (q *Queue) Unfinished() (refs []graspsync.RepoRef) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ref, j := range q.jobs {
		if !IsSurvey(ref) && !j.checks {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Fails reports whether the last run of a job failed.
func (q *Queue) Fails(ref graspsync.RepoRef) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.jobs[ref] != nil && q.jobs[ref].failures > 0
}
