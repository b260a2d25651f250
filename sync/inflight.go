package sync

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// inflight contains the jobs of the pipeline, the batches that wait for them, and the bytes of
// their events. It is safe for concurrent use.
type inflight struct {
	room   *limit.Slots // bytes of events
	checks *limit.Slots // events that wait for a signature check
	claims *fetchClaims

	mu sync.Mutex
	// guarded by mu
	inFlight map[copyKey]*job
	coming   map[graspsync.EventID]int // number of jobs by event id
	entered  uint64                    // number of jobs since the start

	unsettled atomic.Int64  // events in the pipeline
	turn      atomic.Uint64 // of the writer: odd while it works
}

func hostShare(most int64) int64 { return max(1, most/4) }

func newInflight(most int64) *inflight {
	return &inflight{
		room: limit.NewSlots(most, hostShare(most)), checks: limit.NewSlots(2*verifyBatch, verifyBatch),
		claims: newFetchClaims(), inFlight: make(map[copyKey]*job), coming: make(map[graspsync.EventID]int),
	}
}

// admit waits until there is room for the bytes and the signature check of a job. Relay hosts take
// turns, and each host has a maximum.
func (f *inflight) admit(ctx context.Context, j *job) (err error) {
	if j.bytes, err = f.room.Acquire(ctx, j.host(), j.size); err != nil || j.foreign {
		return err
	}
	if j.turn, err = f.checks.Acquire(ctx, j.host(), 1); err != nil {
		j.release()
	}
	return err
}

// enter adds a job. It returns false if the same copy is in the pipeline. Then that job also
// settles the batches of j.
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

// settled ends a job. ok is false if an own failure lost its event. Later copies get a new job.
func (f *inflight) settled(j *job, ok bool) {
	j.release()
	f.mu.Lock()
	delete(f.inFlight, j.key)
	if f.coming[j.key.id]--; f.coming[j.key.id] == 0 {
		delete(f.coming, j.key.id)
	}
	waits := j.waits
	f.mu.Unlock()
	for _, t := range waits {
		t.settle(ok)
	}
	f.claims.settled(j.key.id)
	f.unsettled.Add(-1)
}

func (f *inflight) has(id graspsync.EventID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.coming[id] > 0
}

// pipelineMark identifies the jobs in the pipeline at some time.
type pipelineMark struct{ entered, turn uint64 }

func (f *inflight) mark() pipelineMark {
	f.mu.Lock()
	defer f.mu.Unlock()
	return pipelineMark{entered: f.entered, turn: f.turn.Load()}
}

// resting reports whether all jobs of a mark are settled.
func (f *inflight) resting(at pipelineMark) bool {
	if working := at.turn%2 == 1; working && f.turn.Load() == at.turn {
		return false // revived jobs are in no table
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
