// Package backoff is the one home of failures in a row: how they are counted, when what
// fails may be tried again, when it is dead, and what is believed of a record that an
// earlier process saved. It is pure: the time and the random numbers are arguments.
//
// [Record] with its [Rules] is for what may be dead, as a relay or an address; [Streak]
// is for what is tried again for ever.
package backoff

import "time"

// The rules that relays, their hosts and addresses share unless an operator says otherwise.
const (
	Base         = 5 * time.Second // a restart of the other side, or a packet that was lost
	Max          = time.Hour       // so long at most until it is noticed who is back
	DeadAfter    = 24 * time.Hour  // a server that is mended within a day was never dead
	DeadInterval = 24 * time.Hour  // strangers list any number of what never was there
	RestartPause = time.Minute     // a crash loop of ours must not be one of dials
	Jitter       = 0.1             // who lost the same relay must not come back in step
)

// Longest is the bound of every duration, far from where sums overflow.
const Longest = 10 * 365 * 24 * time.Hour

// mostTimes is the largest number that is believed of a saved record. There is room to
// count on, and doubling has ended long before.
const mostTimes = 1 << 30

// Rules say how long what failed is left alone.
type Rules struct {
	Base, Max    time.Duration // the wait after a first failure, and where its doubling ends
	DeadAfter    time.Duration // how long there must be nothing but failures; 0: it is never dead
	DeadInterval time.Duration // the wait between two attempts at what is dead
	RestartPause time.Duration // between two attempts with a restart of our process in between
	Jitter       float64       // the largest share by which a wait is lengthened at random
}

// Record is how something fared that is attempted again and again. Its zero value was
// never attempted. Zero times mean never.
type Record struct {
	Failures     int       // in a row
	FailingSince time.Time // the first of them, moved on by the time in which nobody tried
	LastFailure  time.Time
	LastAttempt  time.Time
	Next         time.Time // the earliest time for the next attempt
}

// Begin notes that an attempt begins.
func (c Rules) Begin(r Record, now time.Time) Record {
	if idle := now.Sub(r.Next); !r.FailingSince.IsZero() && !c.Dead(r) && idle > c.Max {
		// Long overdue: our process did not run, or nobody wanted it. That time is no
		// failure of the other side's.
		r.FailingSince = r.FailingSince.Add(idle)
	}
	r.LastAttempt = now
	return r
}

// Fail counts a failure. jitter is a random value in [0, 1), as everywhere in this package.
func (c Rules) Fail(r Record, now time.Time, jitter float64) Record {
	if r.FailingSince.IsZero() {
		r.FailingSince = now
	}
	r.LastFailure = now
	r.Failures++
	return c.PutOff(r, r.Failures, now, jitter)
}

// PutOff puts the next attempt where it belongs after n failures. It never comes nearer
// by one.
func (c Rules) PutOff(r Record, n int, now time.Time, jitter float64) Record {
	wait := c.Wait(n, jitter)
	if c.Dead(r) {
		wait = c.Lengthen(c.DeadInterval, jitter)
	}
	r.Next = Later(r.Next, now.Add(wait))
	return r
}

// Dead reports whether failures alone have been seen for long enough. It goes by the last
// failure, not by the clock: who is dead is so because we saw it fail.
func (c Rules) Dead(r Record) bool {
	return c.DeadAfter > 0 && !r.FailingSince.IsZero() && r.LastFailure.Sub(r.FailingSince) >= c.DeadAfter
}

// Wait is how long to wait after n failures in a row, n being at least 1.
func (c Rules) Wait(n int, jitter float64) time.Duration {
	return c.Lengthen(Doubled(c.Base, c.Max, n), jitter)
}

// Lengthen adds what is due to chance.
func (c Rules) Lengthen(d time.Duration, jitter float64) time.Duration {
	return d + time.Duration(jitter*c.Jitter*float64(d))
}

// LongestWait is the longest that the rules ever keep a record waiting.
func (c Rules) LongestWait(r Record) time.Duration {
	d := max(c.Max, c.RestartPause)
	if c.Dead(r) {
		d = max(d, c.DeadInterval)
	}
	return c.Lengthen(d, 1)
}

// Believed is what is believed of a saved record, which may come from a broken file or be
// of a wrong clock. It may still wait for too long: see [Rules.LongestWait].
func (r Record) Believed(now time.Time) Record {
	r.Failures = Count(r.Failures)
	for _, t := range []*time.Time{&r.FailingSince, &r.LastFailure, &r.LastAttempt} {
		*t = Past(*t, now)
	}
	r.Next = Plausible(r.Next)
	return r
}

// Untold reports whether a record does not say when what failed did so.
func (r Record) Untold() bool { return r.FailingSince.IsZero() || r.LastFailure.IsZero() }

// Restart has a record wait that was not left in good order: an attempt may have been
// made since it was saved.
func (c Rules) Restart(r Record, jitter float64) Record {
	if !r.LastAttempt.IsZero() {
		r.Next = Later(r.Next, r.LastAttempt.Add(c.Lengthen(c.RestartPause, jitter)))
	}
	return r
}

// Doubled is first, doubled n-1 times, at most most.
func Doubled(first, most time.Duration, n int) time.Duration {
	d := first
	for i := 1; i < n && d < most; i++ {
		d *= 2
	}
	return min(d, most)
}
