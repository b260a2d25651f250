package sync

import (
	"sync"

	"github.com/graspsync/graspsync/filters"
)

// known remembers the ids of verified events that need no second look since they are
// stored or held. Ids that were only claimed never get here. Of the bound, at least
// the later half is remembered.
type known struct {
	mu   sync.Mutex
	half int
	// guarded by mu
	young, old map[filters.EventID]struct{}
}

func newKnown(most int) *known {
	return &known{half: max(1, most/2), young: make(map[filters.EventID]struct{})}
}

func (k *known) has(id filters.EventID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.young[id]; ok {
		return true
	}
	_, ok := k.old[id]
	return ok
}

func (k *known) add(id filters.EventID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.young) >= k.half {
		k.old, k.young = k.young, make(map[filters.EventID]struct{}, k.half)
	}
	k.young[id] = struct{}{}
}

// forget has an id looked at again.
func (k *known) forget(id filters.EventID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.young, id)
	delete(k.old, id)
}
