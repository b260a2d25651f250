package embedding

import (
	"sync"

	"github.com/graspsync/graspsync"
)

// MaxUnsure is how many ids of events are remembered whose saving failed.
const MaxUnsure = 10_000

// Unsure remembers events that may be stored although that failed, the latest of them. The zero Unsure
// is ready, and safe for concurrent use.
type Unsure struct {
	mu sync.Mutex
	// guarded by mu
	ids   map[graspsync.EventID]int // places in order
	order []graspsync.EventID       // a ring
	next  int                       // place in it
}

// Add takes note of events.
func (u *Unsure) Add(events ...graspsync.Incoming) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, in := range events {
		if in.Event.IsZero() {
			continue
		}
		id := in.Event.ID
		if _, known := u.ids[id]; known {
			continue
		}
		if u.ids == nil {
			u.ids = make(map[graspsync.EventID]int)
		}
		if len(u.order) < MaxUnsure {
			u.ids[id] = len(u.order)
			u.order = append(u.order, id)
			continue
		}
		if old := u.order[u.next]; u.ids[old] == u.next {
			delete(u.ids, old)
		}
		u.ids[id], u.order[u.next] = u.next, id
		u.next = (u.next + 1) % MaxUnsure
	}
}

// Take forgets an id and reports whether it was remembered.
func (u *Unsure) Take(id graspsync.EventID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.ids[id]
	delete(u.ids, id)
	return known
}
