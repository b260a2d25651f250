package pending

import (
	"sync"

	"github.com/graspsync/graspsync"
)

// Known contains the ids of verified events that need no check because they are stored or held.
// Claimed ids are never added. At least the newest half of the maximum is remembered.
type Known struct {
	mu   sync.Mutex
	half int
	// guarded by mu
	young, old map[graspsync.EventID]struct{}
}

// NewKnown returns a Known with a maximum of most ids.
func NewKnown(most int) *Known {
	return &Known{half: max(1, most/2), young: make(map[graspsync.EventID]struct{})}
}

// Has reports whether id is known.
func (k *Known) Has(id graspsync.EventID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.young[id]; ok {
		return true
	}
	_, ok := k.old[id]
	return ok
}

// Add adds an id.
func (k *Known) Add(id graspsync.EventID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.young) >= k.half {
		k.old, k.young = k.young, make(map[graspsync.EventID]struct{}, k.half)
	}
	k.young[id] = struct{}{}
}

// Forget removes an id, so that its event is checked again.
func (k *Known) Forget(id graspsync.EventID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.young, id)
	delete(k.old, id)
}
