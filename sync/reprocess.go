package sync

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// reprocessQueue contains the reasons to judge pending events again. The writer takes them. Senders
// never block, and may be any goroutine.
type reprocessQueue struct {
	most int           // maximum number of keys, and of identifiers
	wake chan struct{} // one slot: there is something

	roomAt atomic.Pointer[time.Time] // when the Policy last ended a hold, which may make room; nil: never
	later  atomic.Bool               // some event had no room

	mu sync.Mutex
	// guarded by mu
	fulfilled []pending.Key       // by events that were stored without the writer
	found     *indexChange        // the result of a scan, nil if there was none
	changed   map[string]struct{} // identifiers whose announcements have changed
	overrun   bool                // a bound was exceeded: judge all pending events
	unsure    bool                // changed is incomplete: check the maintainers of all identifiers
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

// foundAll adds the result of a scan.
func (q *reprocessQueue) foundAll(c indexChange) {
	q.mu.Lock()
	q.overrun = q.overrun || q.found != nil
	q.found = &c
	q.mu.Unlock()
	q.poke()
}

// judgeLater adds an event without room.
func (q *reprocessQueue) judgeLater() {
	q.later.Store(true)
	q.poke()
}

// freed records that there may be room.
func (q *reprocessQueue) freed() {
	now := time.Now()
	q.roomAt.Store(&now)
	q.judgeLater()
}

// room returns the time of the last call of freed.
func (q *reprocessQueue) room() (at time.Time) {
	if p := q.roomAt.Load(); p != nil {
		at = *p
	}
	return at
}

// poke wakes the writer.
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

// takeFound returns the result of a scan, or nil.
func (q *reprocessQueue) takeFound() *indexChange {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := q.found
	q.found = nil
	return found
}

// announced records that the maintainers under an identifier may have changed.
func (q *reprocessQueue) announced(ev graspsync.Event) {
	if ev.Kind != graspsync.KindAnnouncement {
		return
	}
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.changed) < q.most {
			lazy.Put(&q.changed, strings.Clone(a.Ref.Identifier), struct{}{})
		} else {
			q.overrun, q.unsure = true, true
		}
	}
}

// withdrawn records that an announcement is gone, which may make room for other maintainers.
func (q *reprocessQueue) withdrawn(ev graspsync.Event) {
	if ev.Kind == graspsync.KindAnnouncement {
		q.announced(ev)
		q.wakeFor(nil)
	}
}

// takeChanged returns the identifiers whose announcements have changed, and whether there may be
// others.
func (q *reprocessQueue) takeChanged() (changed map[string]struct{}, unsure bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed, unsure = q.changed, q.unsure
	q.changed, q.unsure = nil, false
	return changed, unsure
}
