package sync

import (
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// storeHealth records whether events can be saved. Only the writer changes it. It is safe for
// concurrent use.
type storeHealth struct {
	mu sync.Mutex
	// guarded by mu
	missed  map[graspsync.RelayURL]time.Time // the earliest event of each relay that was dropped unsaved
	nothing bool                             // nothing can be saved
	stuckAt time.Time                        // the last time when nothing could be saved
	again   bool                             // saving works again, and takeMissed has not reported it
}

// works records that events can be saved again.
func (s *storeHealth) works() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again, s.nothing = true, false
}

// stuck records that a retry saved no event.
func (s *storeHealth) stuck(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuckAt, s.nothing = now, true
}

// letGo records that an event of a relay, received at since, was dropped unsaved.
func (s *storeHealth) letGo(relay graspsync.RelayURL, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.missed[relay]; !known || since.Before(at) {
		lazy.Put(&s.missed, relay, since)
	}
}

func (s *storeHealth) savesNothing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nothing
}

// stuckSince reports whether saving failed completely at some time since t.
func (s *storeHealth) stuckSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stuckAt.Before(t)
}

// takeMissed reports whether saving works again after a failure, or works now if late is set.
// missed has the time of the earliest dropped event of each relay.
func (s *storeHealth) takeMissed(late bool) (missed map[graspsync.RelayURL]time.Time, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nothing || !s.again && !late {
		return nil, false
	}
	missed, s.missed, s.again = s.missed, nil, false
	return missed, true
}
