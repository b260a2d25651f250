package embedding

import (
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

const maxUnsure = 10_000

// unsure is a set of events that may be stored although saving them failed. It is safe for
// concurrent use.
type unsure struct {
	mu  sync.Mutex
	ids *limit.Table[graspsync.EventID, struct{}] // guarded by mu; nil before the first
}

func (u *unsure) add(events ...graspsync.Incoming) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = limit.NewTable[graspsync.EventID, struct{}](maxUnsure, 0)
	}
	for _, in := range events {
		if !in.Event.IsZero() {
			u.ids.Put(in.Event.ID, limit.Stranger{}, 0, struct{}{})
		}
	}
}

func (u *unsure) take(id graspsync.EventID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ids != nil && u.ids.Delete(id)
}
