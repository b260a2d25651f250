package sync

import (
	"sync"
	"time"
)

// aliveSlack is the time in which a [Conn] notices that its relay is gone, if it is read.
const aliveSlack = time.Minute

// liveness remembers the signs of life of a relay. A relay that was not read, because our Store was
// slow or our machine asleep, may have been gone for all that time.
type liveness struct {
	mu sync.Mutex
	// guarded by mu
	heardAt   time.Time // the last message, or the start of the connection
	readingAt time.Time // start of the current read
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

// lastAlive returns a time at which the relay was connected and everything it had sent was read.
func (s *liveness) lastAlive() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive()
}

// lastHeard returns the time of the last message, for a relay that has hung for an unknown time.
func (s *liveness) lastHeard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heardAt
}

// alive returns a minute before the loss if the connection was being read then, else the time of
// the last message. mu is held.
func (s *liveness) alive() time.Time {
	if s.lostAt.IsZero() {
		s.lostAt = time.Now() // we ended it
	}
	alive := s.lostAt.Add(-aliveSlack)
	// Only the wall clock shows that the machine was suspended.
	slept := s.lostAt.Round(0).Sub(s.readingAt.Round(0)) - s.lostAt.Sub(s.readingAt)
	if s.readingAt.After(alive) || slept > aliveSlack {
		return s.heardAt
	}
	return alive
}
