package sync

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// inflight is what is on its way into the Store: the copies that are looked at, who counts on
// each, and the bytes that they take. It may be used by any goroutine.
type inflight struct {
	room   *limit.Slots // bytes of events
	checks *limit.Slots // events that wait for the check of their signature
	claims *fetchClaims

	mu sync.Mutex
	// guarded by mu
	inFlight map[copyKey]*job
	coming   map[graspsync.EventID]int // jobs in flight, by the id of their event
	entered  uint64                    // jobs, ever

	unsettled atomic.Int64  // events in the pipeline
	turn      atomic.Uint64 // of the writer: odd while it works
}

// hostShare is how many of the bytes on their way to the Store one relay host has at most.
func hostShare(most int64) int64 { return max(1, most/4) }

func newInflight(most int64) *inflight {
	return &inflight{
		room: limit.NewSlots(most, hostShare(most)), checks: limit.NewSlots(2*verifyBatch, verifyBatch),
		claims: newFetchClaims(), inFlight: make(map[copyKey]*job), coming: make(map[graspsync.EventID]int),
	}
}

// admit waits until there is room for a job: for its bytes, and for the check of its signature. Relay
// hosts take turns, and each has a fixed part.
func (f *inflight) admit(ctx context.Context, j *job) (err error) {
	if j.bytes, err = f.room.Acquire(ctx, j.host(), j.size); err != nil || j.foreign {
		return err
	}
	if j.turn, err = f.checks.Acquire(ctx, j.host(), 1); err != nil {
		j.release()
	}
	return err
}

// enter makes j the copy that is looked at, or has an earlier one speak for it.
func (f *inflight) enter(j *job) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if first, ok := f.inFlight[j.key]; ok {
		first.waits = append(first.waits, j.waits...)
		return false
	}
	f.inFlight[j.key] = j
	f.entered++
	j.number = f.entered
	f.coming[j.key.id]++
	f.unsettled.Add(1)
	return true
}

// letGo ends a job without a look at its event, unless several count on it.
func (f *inflight) letGo(j *job) bool {
	f.mu.Lock()
	if len(j.waits) > 1 {
		f.mu.Unlock()
		return false
	}
	f.out(j)
	f.mu.Unlock()
	j.release()
	f.over(j, j.waits, false)
	return true
}

// leave ends a job. ok is false if its event was lost to a failure of ours.
func (f *inflight) leave(j *job, ok bool) {
	f.mu.Lock()
	f.out(j)
	tokens := j.waits
	f.mu.Unlock()
	f.over(j, tokens, ok)
}

// out takes a job out, so that no other copy joins it. It needs mu.
func (f *inflight) out(j *job) {
	delete(f.inFlight, j.key)
	if f.coming[j.key.id]--; f.coming[j.key.id] == 0 {
		delete(f.coming, j.key.id)
	}
}

// over tells who counted on a job that is out.
func (f *inflight) over(j *job, tokens []*batchWait, ok bool) {
	for _, t := range tokens {
		t.settle(ok)
	}
	f.claims.settled(j.key.id)
	f.unsettled.Add(-1)
}

// settled ends a job that went through the whole pipeline.
func (f *inflight) settled(j *job, ok bool) {
	j.release()
	f.leave(j, ok)
}

// has reports whether a copy of an event is on its way.
func (f *inflight) has(id graspsync.EventID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.coming[id] > 0
}

// stage is how far the pipeline has got.
type pipelineMark struct{ entered, turn uint64 }

// stage returns what is in the pipeline now.
func (f *inflight) mark() pipelineMark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return pipelineMark{entered: f.entered, turn: f.turn.Load()}
}

// resting reports whether all that was in the pipeline at a stage is dealt with.
func (f *inflight) resting(at pipelineMark) bool {
	if working := at.turn%2 == 1; working && f.turn.Load() == at.turn {
		return false // what is revived is in no table
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.inFlight {
		if j.number <= at.entered {
			return false
		}
	}
	return true
}
