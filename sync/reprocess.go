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

// reprocessQueue is what the writer is told from elsewhere: it has some events judged again for that. It
// never blocks, and may be used by any goroutine.
type reprocessQueue struct {
	most int           // keys, and identifiers
	wake chan struct{} // one slot: there is something

	roomAt atomic.Pointer[time.Time] // since when there may be room: the Policy let go of an event; nil: never
	later  atomic.Bool               // there is something without room

	mu sync.Mutex
	// guarded by mu
	fulfilled []pending.Key       // by events that were stored without the writer
	found     *indexChange        // the result of a scan, nil if there was none
	changed   map[string]struct{} // identifiers whose announcements have changed
	overrun   bool                // a bound was exceeded: judge all pending events
	unsure    bool                // changed is incomplete: check the maintainers of all identifiers
}

// wakeFor has the writer judge again what waits for any of keys.
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

// foundAll is wakeFor for what a scan has found, which may be all there is.
func (q *reprocessQueue) foundAll(c indexChange) {
	q.mu.Lock()
	q.overrun = q.overrun || q.found != nil
	q.found = &c
	q.mu.Unlock()
	q.poke()
}

// judgeLater has the writer judge again what has no room.
func (q *reprocessQueue) judgeLater() {
	q.later.Store(true)
	q.poke()
}

// freed takes note that there may be room.
func (q *reprocessQueue) freed() {
	now := time.Now()
	q.roomAt.Store(&now)
	q.judgeLater()
}

// room returns since when there may be room.
func (q *reprocessQueue) room() (at time.Time) {
	if p := q.roomAt.Load(); p != nil {
		at = *p
	}
	return at
}

// poke has the writer look.
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

// takeFound returns what foundAll was told, nil if it was not.
func (q *reprocessQueue) takeFound() *indexChange {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := q.found
	q.found = nil
	return found
}

// announced takes note that there may be others under an identifier whose word counts.
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

// withdrawn has the writer see whether there are others under an identifier whose word counts
// since an announcement is gone: there was no room for them beside those whom it listed.
func (q *reprocessQueue) withdrawn(ev graspsync.Event) {
	if ev.Kind == graspsync.KindAnnouncement {
		q.announced(ev)
		q.wakeFor(nil)
	}
}

// takeChanged returns the identifiers of which announcements have come or gone; unsure: there
// may be others.
func (q *reprocessQueue) takeChanged() (changed map[string]struct{}, unsure bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed, unsure = q.changed, q.unsure
	q.changed, q.unsure = nil, false
	return changed, unsure
}
