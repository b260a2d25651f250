package backoff

import "time"

// Streak is how often in a row something was in vain, and until when it is left alone
// for that. Its zero value never was.
type Streak struct {
	Times int
	Until time.Time
}

// Again counts once more. The wait is first, doubled each time, at most most.
func (s *Streak) Again(now time.Time, first, most time.Duration) {
	s.Times++
	s.Until = now.Add(Doubled(first, most, s.Times))
}

// Waits reports whether it is left alone at a time.
func (s Streak) Waits(now time.Time) bool { return now.Before(s.Until) }

// Restored is a streak that an earlier process saved: it ends within most from now.
func (s Streak) Restored(now time.Time, most time.Duration) Streak {
	return Streak{Times: Count(s.Times), Until: Within(s.Until, now, most)}
}
