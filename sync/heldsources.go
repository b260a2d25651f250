package sync

import (
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// maxHeldSources is more than any purgatory has room for.
const maxHeldSources = 100_000

// heldSource is what will be counted of an event that the Policy holds, once it is
// released.
type heldSource struct {
	source graspsync.Source
	size   int64
	stats  *relayStats // of the relay that brought it, nil if none did
	tries  int         // how often there was no room for it before it was held
}

// heldSources remembers where what the Policy holds came from. One that is forgotten is
// counted as if a client had submitted it. The zero value is ready.
type heldSources struct {
	mu sync.Mutex
	by map[graspsync.EventID]heldSource // guarded by mu
}

// add notes an event. Who brought it first did.
func (h *heldSources) add(id graspsync.EventID, e heldSource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.by[id]; !known && len(h.by) < maxHeldSources {
		lazy.Put(&h.by, id, e)
	}
}

func (h *heldSources) has(id graspsync.EventID) bool {
	_, known := h.get(id, false)
	return known
}

// get returns what is known of an event; take forgets it.
func (h *heldSources) get(id graspsync.EventID, take bool) (heldSource, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, known := h.by[id]
	if take {
		delete(h.by, id)
	}
	return e, known
}
