package sync

import (
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// maxHolds is more than any purgatory has room for.
const maxHolds = 100_000

// heldEvent is what will be counted of an event that the Policy holds, once it is
// released.
type heldEvent struct {
	source graspsync.Source
	size   int64
	stats  *relayStats // of the relay that brought it, nil if none did
	tries  int         // how often there was no room for it before it was held
}

// holds remembers where what the Policy holds came from. One that is forgotten is
// counted as if a client had submitted it. The zero value is ready.
type holds struct {
	mu sync.Mutex
	by map[graspsync.EventID]heldEvent // guarded by mu
}

// add notes an event. Who brought it first did.
func (h *holds) add(id graspsync.EventID, e heldEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.by[id]; !known && len(h.by) < maxHolds {
		lazy.Put(&h.by, id, e)
	}
}

func (h *holds) has(id graspsync.EventID) bool {
	_, known := h.get(id, false)
	return known
}

// get returns what is known of an event; take forgets it.
func (h *holds) get(id graspsync.EventID, take bool) (heldEvent, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, known := h.by[id]
	if take {
		delete(h.by, id)
	}
	return e, known
}
