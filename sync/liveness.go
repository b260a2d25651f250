package sync

import (
	"sync"
	"time"
)

// aliveSlack is within which a [Conn] that is read from notices that its relay is
// gone.
const aliveSlack = time.Minute

// signs remembers the signs of life of a relay. A relay that was not read from,
// because our store was slow or our machine asleep, may have been gone for all of
// that time.
type liveness struct {
	mu sync.Mutex
	// guarded by mu
	heardAt   time.Time // the last message, or that it let us connect
	readingAt time.Time // since when we have been reading without one
	lostAt    time.Time
}

func (s *liveness) heard() { s.note(&s.heardAt) }

func (s *liveness) reading() { s.note(&s.readingAt) }

func (s *liveness) lost() { s.note(&s.lostAt) }

func (s *liveness) note(t *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*t = time.Now()
}

// lastAlive returns a time at which the relay was surely there and all was read that it
// had sent.
func (s *liveness) lastAlive() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive()
}

// lastHeard is lastAlive for a relay that has hung since an unknown time.
func (s *liveness) lastHeard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heardAt
}

// alive returns a time at which the relay was surely there: a minute before it was lost
// if we had been reading then, else when it last said something. s.mu is held.
func (s *liveness) alive() time.Time {
	if s.lostAt.IsZero() {
		s.lostAt = time.Now() // we ended it
	}
	alive := s.lostAt.Add(-aliveSlack)
	// A suspended machine shows in the wall clock only.
	slept := s.lostAt.Round(0).Sub(s.readingAt.Round(0)) - s.lostAt.Sub(s.readingAt)
	if s.readingAt.After(alive) || slept > aliveSlack {
		return s.heardAt
	}
	return alive
}
