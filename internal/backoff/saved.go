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

// Saved is a time as it is handed out for saving: free of the reading of the monotonic
// clock, which means nothing to another process.
func Saved(t time.Time) time.Time { return t.Round(0).UTC() }

// Plausible drops a saved time that no clock of ours has shown.
func Plausible(t time.Time) time.Time {
	if t.Before(time.Unix(0, 0)) {
		return time.Time{}
	}
	return t
}

// Past is a saved time of what has happened: not later than now, whatever the clock
// showed.
func Past(t, now time.Time) time.Time { return Earlier(Plausible(t), now) }

// Within is a saved time that is not later than so long from now. It goes by the
// monotonic clock, as what is not saved does: a clock that is set from here on moves
// nothing. The zero time stays.
func Within(t, now time.Time, most time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(min(t.Sub(now), most))
}

// Count is a saved number of what happened in a row.
func Count(n int) int { return min(max(n, 0), mostTimes) }
