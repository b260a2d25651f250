package health

import "time"

// diedWith is the error of an attempt or connection that our process did not
// outlive, as far as the saved record tells.
const diedWith = "our process ended before it was known whether the connection holds"

// restore makes a record that was saved by an earlier process usable: nothing is
// connected any more, and nothing the record says, even if it comes from a broken
// file or a clock that was wrong, holds the relay back for longer than the rules do
// or makes it due sooner. It is pure.
func (c Config) restore(r Record, now time.Time, jitter float64) Record {
	r = c.sanitise(r, now)
	if !r.Held && r.inUse() {
		// A relay that makes us crash must not be dialed faster for it.
		at := later(r.LastAttempt, r.ConnectedAt)
		if at.IsZero() {
			at = now
		}
		r = c.fail(r, diedWith, at, jitter)
	}
	r.Dialing, r.Held, r.ConnectedAt = false, false, time.Time{}
	if !r.LastAttempt.IsZero() {
		r.NextAttempt = later(r.NextAttempt, r.LastAttempt.Add(c.lengthen(c.RestartPause, jitter)))
		r.CountedTo = now
	}
	r.NextAttempt = earlier(r.NextAttempt, now.Add(c.longestWait(r)))
	return r
}

// longestWait is the longest that the rules ever keep this relay waiting.
func (c Config) longestWait(r Record) time.Duration {
	d := max(c.MaxBackoff, c.HostileBackoff, c.RestartPause)
	if c.dead(r) {
		d = max(d, c.DeadInterval)
	}
	return c.lengthen(d, 1)
}

// sanitise forces every field into what the rules can have made of it by now.
func (c Config) sanitise(r Record, now time.Time) Record {
	const mostFailures = 1 << 30 // room to count on
	r.Failures = min(max(r.Failures, 0), mostFailures)
	for _, t := range []*time.Time{
		&r.FailingSince, &r.LastFailure, &r.LastSuccess, &r.RecoveredAt,
		&r.LastAttempt, &r.ConnectedAt, &r.CountedTo,
	} {
		*t = earlier(plausible(*t), now)
	}
	r.NextAttempt = plausible(r.NextAttempt)
	r.RateLimitedUntil = earlier(plausible(r.RateLimitedUntil), now.Add(c.RateLimit))
	switch {
	case r.Failures == 0:
		r.FailingSince = time.Time{}
	case r.FailingSince.IsZero() || r.LastFailure.IsZero():
		r.FailingSince, r.LastFailure = now, now
		r.NextAttempt = later(r.NextAttempt, now.Add(c.backoff(r.Failures, 0)))
	}
	r.Held = r.Held && r.connected()
	r.Up = min(max(r.Up, 0), longest)
	r.Down = min(max(r.Down, 0), longest)
	r.LastError = escape(r.LastError)
	return r
}

// plausible drops times that no clock of ours has shown.
func plausible(t time.Time) time.Time {
	if t.Before(time.Unix(0, 0)) {
		return time.Time{}
	}
	return t
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// saved is the record as it is handed out for saving: free of readings of the
// monotonic clock, which mean nothing to another process.
func (r Record) saved() Record {
	for _, t := range []*time.Time{
		&r.FailingSince, &r.LastFailure, &r.LastSuccess, &r.RecoveredAt, &r.LastAttempt,
		&r.NextAttempt, &r.RateLimitedUntil, &r.ConnectedAt, &r.CountedTo,
	} {
		if !t.IsZero() {
			*t = t.Round(0).UTC()
		}
	}
	return r
}
