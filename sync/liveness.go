package sync

import (
	"sync"
	"time"
)

// aliveSlack is the maximum time until a [Conn] that is read notices the loss of its relay.
const aliveSlack = time.Minute

// liveness records the signs of life of a relay. While the relay is not read, because our Store is
// slow or our machine asleep, its loss is not noticed.
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

// lastAlive returns a time at which the relay was connected and everything sent by it was read.
func (s *liveness) lastAlive() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive()
}

// lastHeard returns the time of the last message. It is used for a relay that has hung for an
// unknown time.
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
