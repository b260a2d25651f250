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
type signs struct {
	mu sync.Mutex
	// guarded by mu
	heardAt   time.Time // the last message, or that it let us connect
	readingAt time.Time // since when we have been reading without one
	lostAt    time.Time
	slowedAt  time.Time // since when we may read behind what the relay has sent, zero: not
	skippedAt time.Time // since when something was left out that is not caught up with
	skipAt    time.Time // the last time
}

// abreast is after how long without a message, while reading, all was read that a relay
// has sent.
const abreast = 5 * time.Second

// heard notes a message. done says that those before it were all dealt with.
func (s *signs) heard(done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.catchUp(now, done)
	s.heardAt = now
}

// catchUp notes if we had read all that there was. s.mu is held.
func (s *signs) catchUp(now time.Time, done bool) {
	if done && !s.readingAt.Before(s.heardAt) && now.Sub(s.readingAt) >= abreast {
		s.slowedAt = time.Time{}
	}
}

// slowed notes that the relay is not read from for a while.
func (s *signs) slowed() { s.first(&s.slowedAt) }

// slowFor reports whether for at least that long we may have been reading behind what the
// relay has sent.
func (s *signs) slowFor(d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.slowedAt.IsZero() && time.Since(s.slowedAt) >= d
}

func (s *signs) first(t *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.IsZero() {
		*t = time.Now()
	}
}

// skipped notes that an event was left out.
func (s *signs) skipped() {
	s.first(&s.skippedAt)
	s.note(&s.skipAt)
}

// behind returns since when not all that the relay has sent is known to be read and
// looked at, zero if it is.
func (s *signs) behind(done bool) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catchUp(time.Now(), done)
	return s.since()
}

// since is behind as far as it is known. s.mu is held.
func (s *signs) since() time.Time {
	if s.slowedAt.IsZero() || !s.skippedAt.IsZero() && s.skippedAt.Before(s.slowedAt) {
		return s.skippedAt
	}
	return s.slowedAt
}

// takeSkipped returns since when events were left out, and forgets it: once none was for
// a while, or after a longer one, since each catch-up asks for all that is followed. What
// finds no room live is asked for as often.
func (s *signs) takeSkipped(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.skippedAt
	if at.IsZero() || now.Sub(s.skipAt) < skipPause && now.Sub(at) < skipMost {
		return time.Time{}
	}
	s.skippedAt = time.Time{}
	return at
}

const (
	skipPause = time.Minute
	skipMost  = 10 * time.Minute
)

func (s *signs) reading() { s.note(&s.readingAt) }

func (s *signs) lost() { s.note(&s.lostAt) }

func (s *signs) note(t *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*t = time.Now()
}

// lastAlive returns a time at which the relay was surely there and all was read that it
// had sent.
func (s *signs) lastAlive() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.upTo(s.alive())
}

// lastHeard is lastAlive for a relay that has hung since an unknown time.
func (s *signs) lastHeard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.upTo(s.heardAt)
}

// upTo is t, or since when not all that the relay has sent is known to be looked at. s.mu is held.
func (s *signs) upTo(t time.Time) time.Time {
	if at := s.since(); !at.IsZero() && at.Before(t) {
		return at
	}
	return t
}

// alive returns a time at which the relay was surely there: a minute before it was lost
// if we had been reading then, else when it last said something. s.mu is held.
func (s *signs) alive() time.Time {
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
