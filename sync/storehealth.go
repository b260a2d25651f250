package sync

import (
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// storeHealth is whether events can be saved, as the writer finds out and others ask. It may be used
// by any goroutine.
type storeHealth struct {
	mu sync.Mutex
	// guarded by mu
	missed  map[graspsync.RelayURL]time.Time // since when events of a relay were let go of
	nothing bool                             // can be saved now
	stuckAt time.Time                        // when last nothing could be saved
	again   bool                             // events could be saved again, and that was not told
}

// works takes note that events can be saved again.
func (s *storeHealth) works() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again, s.nothing = true, false
}

// stuck takes note that of all that was tried nothing could be saved.
func (s *storeHealth) stuck(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuckAt, s.nothing = now, true
}

// letGo takes note that an event of a relay was let go of that had come before since.
func (s *storeHealth) letGo(relay graspsync.RelayURL, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.missed[relay]; !known || since.Before(at) {
		lazy.Put(&s.missed, relay, since)
	}
}

// savesNothing reports whether of all that is tried nothing can be saved.
func (s *storeHealth) savesNothing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nothing
}

// stuckSince reports whether nothing could be saved at some time since then.
func (s *storeHealth) stuckSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stuckAt.Before(t)
}

// takeMissed reports whether events can be saved again that could not be, or can anyhow
// if late is set, and returns since when some were let go of, by relay.
func (s *storeHealth) takeMissed(late bool) (missed map[graspsync.RelayURL]time.Time, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nothing || !s.again && !late {
		return nil, false
	}
	missed, s.missed, s.again = s.missed, nil, false
	return missed, true
}
