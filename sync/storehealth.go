package sync

import (
	"maps"
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
	lost    map[graspsync.RelayURL]time.Time // the earliest event of each relay that was dropped unsaved
	missed  map[graspsync.RelayURL]time.Time // the same, of relays to ask since saving works again
	nothing bool                             // nothing can be saved
	stuckAt time.Time                        // the last time when nothing could be saved
	again   bool                             // saving works again, and recovered has not reported it
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
	keepEarliest(&s.lost, relay, since)
}

func keepEarliest(times *map[graspsync.RelayURL]time.Time, relay graspsync.RelayURL, t time.Time) {
	if at, known := (*times)[relay]; !known || t.Before(at) {
		lazy.Put(times, relay, t)
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

// recovered reports whether saving works again after a failure, or works now if late is set. missed
// are the relays to ask for their dropped events, with the time of the earliest.
func (s *storeHealth) recovered(late bool) (missed map[graspsync.RelayURL]time.Time, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nothing {
		return nil, false
	}
	if again = s.again || late; again {
		for u, since := range s.lost {
			keepEarliest(&s.missed, u, since)
		}
		s.lost, s.again = nil, false
	}
	return maps.Clone(s.missed), again
}

// refetched records that the dropped events of a relay since a time are requested.
func (s *storeHealth) refetched(relay graspsync.RelayURL, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missed[relay].Equal(since) {
		delete(s.missed, relay)
	}
}
