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

// Saved returns a time for saving, without the monotonic clock reading.
func Saved(t time.Time) time.Time { return t.Round(0).UTC() }

// Plausible returns t, or the zero time if t is before 1970.
func Plausible(t time.Time) time.Time {
	if t.Before(time.Unix(0, 0)) {
		return time.Time{}
	}
	return t
}

// Past limits a saved time of a past event to now.
func Past(t, now time.Time) time.Time { return Earlier(Plausible(t), now) }

// Within limits a saved time to most from now, with a monotonic clock reading. The zero time stays
// zero.
func Within(t, now time.Time, most time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(min(t.Sub(now), most))
}

// Count limits a saved count to the valid range.
func Count(n int) int { return min(max(n, 0), mostTimes) }
