package sync

import "time"

const (
	retryFirst  = time.Second     // before events are saved again that could not be
	retryMost   = 2 * time.Minute // the same after many failures
	maxAttempts = 20              // for one event while others are saved, about half an hour
	maxTries    = 720             // for one event in all, about a day: then the next pass brings it
)

// retries holds jobs whose events could not be judged or saved, until they are
// tried again all together. What is in it is bounded by the bytes in flight and by
// what may wait. It belongs to the writer.
type retries struct {
	jobs  []*job
	wait  time.Duration
	timer <-chan time.Time // nil if there is nothing to try
	works uint64           // how often the Store saved something
}

func (r *retries) add(j *job) {
	r.jobs = append(r.jobs, j)
	if r.timer == nil {
		r.wait = min(max(2*r.wait, retryFirst), retryMost)
		r.timer = time.After(r.wait)
	}
}

// due returns the channel that says when to take, nil if there is nothing.
func (r *retries) due() <-chan time.Time { return r.timer }

func (r *retries) take() []*job {
	jobs := r.jobs
	r.jobs, r.timer = nil, nil
	return jobs
}

// worked notes that the Store works: the next failure is a first one.
func (r *retries) worked() {
	if len(r.jobs) == 0 {
		r.wait = 0
	}
}
