package backoff

import "time"

// Streak counts consecutive failures and the wait after them.
type Streak struct {
	Times int
	Until time.Time
}

// Fail records a failure. The wait is first, doubled up to most.
func (s *Streak) Fail(now time.Time, first, most time.Duration) {
	s.Times++
	s.Until = now.Add(Doubled(first, most, s.Times))
}

// Waits reports whether the wait has not ended at now.
func (s Streak) Waits(now time.Time) bool { return now.Before(s.Until) }

// Restored returns a saved streak whose wait ends within most from now.
func (s Streak) Restored(now time.Time, most time.Duration) Streak {
	return Streak{Times: ClampCount(s.Times), Until: ClampFuture(s.Until, now, most)}
}
