package sync

import (
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// maxHeldSources exceeds the room of any purgatory.
const maxHeldSources = 100_000

// heldSource is the origin of a held event. Its counters are updated when the event is released.
type heldSource struct {
	source graspsync.Source
	size   int64
	stats  *relayStats // of the relay; nil for a client
	tries  int         // attempts without room before it was held
}

// heldSources contains the origins of held events. An event without an origin counts as submitted
// by a client. The zero value is ready to use.
type heldSources struct {
	mu sync.Mutex
	by map[graspsync.EventID]heldSource // guarded by mu
}

// add records the origin of an event if none is recorded.
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

// get returns the origin of an event, and removes it if take is set.
func (h *heldSources) get(id graspsync.EventID, take bool) (heldSource, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, known := h.by[id]
	if take {
		delete(h.by, id)
	}
	return e, known
}
