package embedding

import (
	"sync"

	"github.com/graspsync/graspsync"
)

// Removals are the events that were removed for the sake of others, as long as the relay's hooks
// have not been told. The zero Removals is ready, and safe for concurrent use.
type Removals struct {
	mu sync.Mutex
	// guarded by mu
	events []graspsync.Event
	n      uint64 // there were, ever
}

// Add takes note of one.
func (r *Removals) Add(e graspsync.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	r.n++
}

// Count returns how many there were, ever.
func (r *Removals) Count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

// Take returns those that there are, and forgets them.
func (r *Removals) Take() []graspsync.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}
