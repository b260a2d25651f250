package pending

import (
	"sync"

	"github.com/graspsync/graspsync"
)

// Known remembers the ids of verified events that need no second look since they are
// stored or held. Ids that were only claimed never get here. Of the bound, at least
// the later half is remembered.
type Known struct {
	mu   sync.Mutex
	half int
	// guarded by mu
	young, old map[graspsync.EventID]struct{}
}

// NewKnown returns a memory of at most so many ids.
func NewKnown(most int) *Known {
	return &Known{half: max(1, most/2), young: make(map[graspsync.EventID]struct{})}
}

// Has reports whether an id is remembered.
func (k *Known) Has(id graspsync.EventID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.young[id]; ok {
		return true
	}
	_, ok := k.old[id]
	return ok
}

// Add remembers an id.
func (k *Known) Add(id graspsync.EventID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.young) >= k.half {
		k.old, k.young = k.young, make(map[graspsync.EventID]struct{}, k.half)
	}
	k.young[id] = struct{}{}
}

// Forget has an id looked at again.
func (k *Known) Forget(id graspsync.EventID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.young, id)
	delete(k.old, id)
}
