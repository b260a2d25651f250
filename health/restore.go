package health

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

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
		at := backoff.Later(r.LastAttempt, r.ConnectedAt)
		if at.IsZero() {
			at = now
		}
		r = c.fail(r, diedWith, at, jitter)
	}
	r.Dialing, r.Held, r.ConnectedAt = false, false, time.Time{}
	r, clean := c.restart(r, now)
	if !clean {
		r = r.with(c.rules().Restart(r.failing(), jitter))
	}
	if !r.LastAttempt.IsZero() {
		r.CountedTo = now
	}
	r.NextAttempt = backoff.Earlier(r.NextAttempt, now.Add(c.longestWait(r)))
	return r
}

// A process that is stopped and started by hand, as for an update, is no crash loop: so
// often in a row a relay that had answered may be dialed at once.
const (
	cleanRestarts = 3
	cleanWithin   = 10 * time.Minute
)

// restart counts a stop in good order, if there was one, and reports whether the relay
// may be dialed at once. One that was failing keeps its place in the backoff.
func (c Config) restart(r Record, now time.Time) (Record, bool) {
	if r.StoppedAt.IsZero() {
		return r, false
	}
	if now.Sub(r.RestartsSince) >= cleanWithin {
		r.RestartsSince, r.Restarts = now, 0
	}
	r.StoppedAt = time.Time{}
	if r.Restarts++; r.Restarts > cleanRestarts || r.Failures > 0 {
		return r, false
	}
	r.NextAttempt = time.Time{} // it was that of a connection which had not held for long
	return r, true
}

// longestWait is the longest that the rules ever keep this relay waiting.
func (c Config) longestWait(r Record) time.Duration {
	rules := c.rules()
	return max(rules.LongestWait(r.failing()), rules.Lengthen(c.fixed.HostileBackoff, 1))
}

// sanitise forces every field into what the rules can have made of it by now.
func (c Config) sanitise(r Record, now time.Time) Record {
	f := r.failing().Believed(now)
	switch {
	case f.Failures == 0:
		f.FailingSince = time.Time{}
	case f.Untold():
		f.FailingSince, f.LastFailure = now, now
		f = c.rules().PutOff(f, f.Failures, now, 0)
	}
	r = r.with(f)
	for _, t := range []*time.Time{
		&r.LastSuccess, &r.RecoveredAt, &r.ConnectedAt, &r.CountedTo, &r.StoppedAt, &r.RestartsSince, &r.UsefulAt,
	} {
		*t = backoff.Past(*t, now)
	}
	r.RateLimitedUntil = backoff.Earlier(backoff.Plausible(r.RateLimitedUntil), now.Add(c.mostRateLimit()))
	if r.Useful && r.UsefulAt.IsZero() { // by an older version, which did not say
		r.UsefulAt = r.LastSuccess
	}
	r.Restarts = backoff.Count(r.Restarts)
	r.Held = r.Held && r.connected()
	r.Up = min(max(r.Up, 0), backoff.Longest)
	r.Down = min(max(r.Down, 0), backoff.Longest)
	r.LastError = graspsync.Printable(r.LastError)
	return r
}

// saved is the record as it is handed out for saving.
func (r Record) saved() Record {
	for _, t := range []*time.Time{
		&r.FailingSince, &r.LastFailure, &r.LastSuccess, &r.RecoveredAt, &r.LastAttempt,
		&r.NextAttempt, &r.RateLimitedUntil, &r.ConnectedAt, &r.CountedTo,
		&r.StoppedAt, &r.RestartsSince, &r.UsefulAt,
	} {
		*t = backoff.Saved(*t)
	}
	return r
}
