package sync

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync/sync/internal/pending"
)

// reprocessQueue contains the causes to judge pending events again. The writer takes them. Any
// goroutine may add causes and never blocks.
type reprocessQueue struct {
	most int           // maximum number of keys
	wake chan struct{} // one slot: the queue is not empty

	roomAt atomic.Pointer[time.Time] // when the Policy last ended a hold, which may make room; nil: never
	later  atomic.Bool               // some event had no room

	mu sync.Mutex
	// guarded by mu
	fulfilled []pending.Key // by events that were stored without the writer
	overrun   bool          // a limit was exceeded: judge all pending events
}

// wakeFor adds fulfilled dependencies.
func (q *reprocessQueue) wakeFor(keys []pending.Key) {
	q.mu.Lock()
	if len(q.fulfilled) < q.most {
		q.fulfilled = append(q.fulfilled, keys...)
	} else {
		q.overrun = true
	}
	q.mu.Unlock()
	q.poke()
}

// judgeLater records that an event waits for room.
func (q *reprocessQueue) judgeLater() {
	q.later.Store(true)
	q.poke()
}

// freed records that there may be room for events with the verdict [graspsync.Later].
func (q *reprocessQueue) freed() {
	now := time.Now()
	q.roomAt.Store(&now)
	q.judgeLater()
}

func (q *reprocessQueue) room() (at time.Time) {
	if p := q.roomAt.Load(); p != nil {
		at = *p
	}
	return at
}

func (q *reprocessQueue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *reprocessQueue) takeFulfilled() (keys []pending.Key, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	keys, all = q.fulfilled, q.overrun
	q.fulfilled, q.overrun = nil, false
	return keys, all
}
