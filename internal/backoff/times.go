package backoff

import "time"

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// WallTime returns t in UTC without the monotonic clock reading, for saving.
func WallTime(t time.Time) time.Time { return t.Round(0).UTC() }

// Plausible returns t, or the zero time if t is before 1970.
func Plausible(t time.Time) time.Time {
	if t.Before(time.Unix(0, 0)) {
		return time.Time{}
	}
	return t
}

// ClampPast limits a saved time of a past event to now.
func ClampPast(t, now time.Time) time.Time { return Earlier(Plausible(t), now) }

// ClampFuture limits a saved time to most from now, with a monotonic clock reading. The zero time stays
// zero.
func ClampFuture(t, now time.Time, most time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(min(t.Sub(now), most))
}

// ClampCount limits a saved count to the valid range.
func ClampCount(n int) int { return min(max(n, 0), maxCount) }
