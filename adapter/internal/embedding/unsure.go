package embedding

import (
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// MaxUnsure is the maximum number of remembered ids. The oldest are dropped.
const MaxUnsure = 10_000

// Unsure is a set of events that may be stored although saving them failed. The zero Unsure is
// ready for use. It is safe for concurrent use.
type Unsure struct {
	mu  sync.Mutex
	ids *limit.Table[graspsync.EventID, struct{}] // guarded by mu; nil before the first
}

// Add remembers events.
func (u *Unsure) Add(events ...graspsync.Incoming) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = limit.NewTable[graspsync.EventID, struct{}](MaxUnsure, 0)
	}
	for _, in := range events {
		if !in.Event.IsZero() {
			u.ids.Put(in.Event.ID, limit.Stranger{}, 0, struct{}{})
		}
	}
}

// Take removes an id and reports whether it was remembered.
func (u *Unsure) Take(id graspsync.EventID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ids != nil && u.ids.Delete(id)
}
