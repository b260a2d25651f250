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

// news is what the writer is told from elsewhere: it has some events judged again for that. It
// never blocks, and may be used by any goroutine.
type news struct {
	most int           // keys, and identifiers
	wake chan struct{} // one slot: there is something

	roomAt atomic.Pointer[time.Time] // since when there may be room: the Policy let go of an event; nil: never
	later  atomic.Bool               // there is something without room

	mu sync.Mutex
	// guarded by mu
	fulfilled []pending.Key        // by events that did not come through here
	found     func() []pending.Key // the same, by what a scan has found; nil: nothing
	changed   map[string]struct{}  // identifiers of which announcements have come or gone
	overrun   bool                 // one of these was full: judge all that waits
	unsure    bool                 // changed was: see who is listed under all of them
}

// wakeFor has the writer judge again what waits for any of keys.
func (n *news) wakeFor(keys []pending.Key) {
	n.mu.Lock()
	if len(n.fulfilled) < n.most {
		n.fulfilled = append(n.fulfilled, keys...)
	} else {
		n.overrun = true
	}
	n.mu.Unlock()
	n.poke()
}

// foundAll is wakeFor for what a scan has found, which may be all there is.
func (n *news) foundAll(keys func() []pending.Key) {
	n.mu.Lock()
	n.overrun = n.overrun || n.found != nil
	n.found = keys
	n.mu.Unlock()
	n.poke()
}

// judgeLater has the writer judge again what has no room.
func (n *news) judgeLater() {
	n.later.Store(true)
	n.poke()
}

// freed takes note that there may be room.
func (n *news) freed() {
	now := time.Now()
	n.roomAt.Store(&now)
	n.judgeLater()
}

// room returns since when there may be room.
func (n *news) room() (at time.Time) {
	if p := n.roomAt.Load(); p != nil {
		at = *p
	}
	return at
}

// poke has the writer look.
func (n *news) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *news) takeFulfilled() (keys []pending.Key, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	keys, all = n.fulfilled, n.overrun
	n.fulfilled, n.overrun = nil, false
	return keys, all
}

// takeFound returns what foundAll was told, nil if it was not.
func (n *news) takeFound() func() []pending.Key {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := n.found
	n.found = nil
	return found
}

// announced takes note that there may be others under an identifier whose word counts.
func (n *news) announced(ev graspsync.Event) {
	if ev.Kind != graspsync.KindAnnouncement {
		return
	}
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(n.changed) < n.most {
			lazy.Put(&n.changed, strings.Clone(a.Ref.Identifier), struct{}{})
		} else {
			n.overrun, n.unsure = true, true
		}
	}
}

// withdrawn has the writer see whether there are others under an identifier whose word counts
// since an announcement is gone: there was no room for them beside those whom it listed.
func (n *news) withdrawn(ev graspsync.Event) {
	if ev.Kind == graspsync.KindAnnouncement {
		n.announced(ev)
		n.wakeFor(nil)
	}
}

// takeChanged returns the identifiers of which announcements have come or gone; unsure: there
// may be others.
func (n *news) takeChanged() (changed map[string]struct{}, unsure bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed, unsure = n.changed, n.unsure
	n.changed, n.unsure = nil, false
	return changed, unsure
}
