// Package backoff counts consecutive failures, and decides when a retry is due and when a target is
// dead. It is pure: times and random numbers in [0, 1) are arguments.
//
// [Record] with [Rules] is for targets that may be dead. [Streak] is for endless retries.
package backoff

import "time"

// Default rules for relays, hosts and addresses.
const (
	Base         = 5 * time.Second // covers a restart of the target or a lost packet
	Max          = time.Hour       // maximum delay until a recovered target is noticed
	DeadAfter    = 24 * time.Hour  // allows a day for repairs
	DeadInterval = 24 * time.Hour  // users may list any number of servers that never existed
	RestartPause = time.Minute     // keeps a crash loop from flooding targets
	Jitter       = 0.1             // spreads the retries of many servers
)

// MaxDuration is the maximum of all durations. It prevents overflows.
const MaxDuration = 10 * 365 * 24 * time.Hour

// maxCount is the maximum accepted count of a saved record.
const maxCount = 1 << 30

// Rules are the waits after failures.
type Rules struct {
	Base, Max    time.Duration // wait after the first failure, and its maximum after doubling
	DeadAfter    time.Duration // minimum time of uninterrupted failures until a target is dead; 0: never
	RestartPause time.Duration // minimum wait between attempts with a restart of our process in between
}

// Default returns the rules for relays, hosts and addresses.
func Default() Rules {
	return Rules{Base: Base, Max: Max, DeadAfter: DeadAfter, RestartPause: RestartPause}
}

// Record is the failure record of a target. Zero times mean never.
type Record struct {
	Failures     int       `json:"failures,omitempty"`     // consecutive
	FailingSince time.Time `json:"failing_since,omitzero"` // time of the first failure, moved forward by time without attempts
	LastFailure  time.Time `json:"last_failure,omitzero"`
	LastAttempt  time.Time `json:"last_attempt,omitzero"`
	NextAttempt  time.Time `json:"next_attempt,omitzero"` // earliest time of the next attempt
}

// Begin records the start of an attempt.
func (c Rules) Begin(r Record, now time.Time) Record {
	if idle := now.Sub(r.NextAttempt); !r.FailingSince.IsZero() && !c.Dead(r) && idle > c.Max {
		// The time in which our process did not run or did not want the target is no failure.
		r.FailingSince = r.FailingSince.Add(idle)
	}
	r.LastAttempt = now
	return r
}

// Fail records a failure.
func (c Rules) Fail(r Record, now time.Time, jitter float64) Record {
	if r.FailingSince.IsZero() {
		r.FailingSince = now
	}
	r.LastFailure = now
	r.Failures++
	return c.DelayNext(r, r.Failures, now, jitter)
}

// DelayNext delays the next attempt after n failures, never to an earlier time.
func (c Rules) DelayNext(r Record, n int, now time.Time, jitter float64) Record {
	wait := c.Wait(n, jitter)
	if c.Dead(r) {
		wait = AddJitter(DeadInterval, jitter)
	}
	r.NextAttempt = Later(r.NextAttempt, now.Add(wait))
	return r
}

// Dead reports whether failures have lasted for DeadAfter, at the time of the last failure.
func (c Rules) Dead(r Record) bool {
	return c.DeadAfter > 0 && !r.FailingSince.IsZero() && r.LastFailure.Sub(r.FailingSince) >= c.DeadAfter
}

// Wait returns the wait after n consecutive failures, n >= 1.
func (c Rules) Wait(n int, jitter float64) time.Duration {
	return AddJitter(Doubled(c.Base, c.Max, n), jitter)
}

// AddJitter extends a wait randomly, by at most the fraction Jitter.
func AddJitter(d time.Duration, jitter float64) time.Duration {
	return d + time.Duration(jitter*Jitter*float64(d))
}

// LongestWait returns the maximum wait of a record.
func (c Rules) LongestWait(r Record) time.Duration {
	d := max(c.Max, c.RestartPause)
	if c.Dead(r) {
		d = max(d, DeadInterval)
	}
	return AddJitter(d, 1)
}

// Sanitize corrects invalid values of a saved record. Its wait may still be too long, see
// [Rules.LongestWait].
func (r Record) Sanitize(now time.Time) Record {
	r.Failures = ClampCount(r.Failures)
	for _, t := range []*time.Time{&r.FailingSince, &r.LastFailure, &r.LastAttempt} {
		*t = ClampPast(*t, now)
	}
	r.NextAttempt = Plausible(r.NextAttempt)
	return r
}

// Restart delays a record after an unclean stop, which may have hidden an attempt.
func (c Rules) Restart(r Record, jitter float64) Record {
	if !r.LastAttempt.IsZero() {
		r.NextAttempt = Later(r.NextAttempt, r.LastAttempt.Add(AddJitter(c.RestartPause, jitter)))
	}
	return r
}

// Doubled returns first, doubled n-1 times, at most most.
func Doubled(first, most time.Duration, n int) time.Duration {
	d := first
	for i := 1; i < n && d < most; i++ {
		d *= 2
	}
	return min(d, most)
}
