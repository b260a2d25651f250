package health

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

type kind uint8

const (
	attempt   kind = iota + 1 // a dial begins
	connected                 // the dial succeeded
	failed                    // the dial failed
	lost                      // the connection ended, not by us
	closed                    // we ended the dial or the connection
	stopped                   // like closed, because our process stops
	hung                      // we ended the connection, because the relay answered nothing
	hostile                   // the relay sent forged data; the connection ends
	forgiven                  // an operator requested an attempt
	refused                   // our own settings forbid the dial
)

type event struct {
	kind kind
	text string        // failed, lost, hung, hostile, refused: the error, escaped
	wait time.Duration // failed: the wait that the relay requested, or 0
}

// step returns the record after an event. jitter is a random value in [0, 1). All functions in this
// file are pure.
func (c Config) step(r Record, e event, now time.Time, jitter float64) Record {
	r = r.settle(now).countTo(now)
	switch e.kind {
	case attempt:
		return c.attempt(r, now, jitter)
	case connected:
		r.refused = 0
		return c.connect(r, now, jitter)
	case failed:
		r.refused = 0
		return c.failAttempt(r, e, now, jitter)
	case refused:
		r.Dialing, r.LastError = false, e.text
		r.refused++
		r.NextAttempt = now.Add(backoff.AddJitter(backoff.Doubled(refusedPause, backoff.Max, r.refused), jitter))
	case lost:
		return c.end(r, e.text, now, jitter)
	case hung:
		if r.connected() {
			return c.fail(r.disconnect(), e.text, now, jitter)
		}
	case closed, stopped:
		if e.kind == stopped && r.connected() {
			r.StoppedAt = now
		}
		r.Dialing, r.Held, r.ConnectedAt = false, false, time.Time{}
	case forgiven:
		r.NextAttempt = time.Time{}
	case hostile:
		r = c.fail(r.disconnect(), e.text, now, jitter)
		r.NextAttempt = backoff.Later(r.NextAttempt, now.Add(backoff.AddJitter(hostileBackoff, jitter)))
	}
	return r
}

// settle marks a connection that has held long enough as a success. Each event and each read calls
// it first.
func (r Record) settle(now time.Time) Record {
	held := r.ConnectedAt.Add(successAfter)
	if !r.connected() || r.Held || now.Before(held) {
		return r
	}
	r.Held = true
	r.LastSuccess = held
	r.Proven = true
	r.Failures = 0
	r.FailingSince = time.Time{}
	r.NextAttempt = time.Time{}
	return r
}

// attempt schedules the next attempt as if this one fails, for callers that report no outcome and
// processes that crash.
func (c Config) attempt(r Record, now time.Time, jitter float64) Record {
	r = c.end(r, "", now, jitter)
	r = c.begin(r, now)
	r.Record = c.rules().DelayNext(r.Record, r.Failures+1, now, jitter)
	return r
}

func (c Config) begin(r Record, now time.Time) Record {
	r.Record = c.rules().Begin(r.Record, now)
	if r.CountedTo.IsZero() {
		r.CountedTo = now
	}
	r.Attempts++
	r.StoppedAt = time.Time{} // a crash from now on is not a clean stop
	r.Dialing = true
	return r
}

func (c Config) connect(r Record, now time.Time, jitter float64) Record {
	if r.connected() {
		r = c.end(r, "", now, jitter)
	}
	if !r.Dialing {
		r = c.begin(r, now)
	}
	r.Dialing = false
	r.ConnectedAt = now
	r.Connections++
	if r.WasLost {
		r.WasLost = false
		r.Reconnects++
	}
	if r.Failures > 0 {
		r.RecoveredAt = now
	}
	return r
}

// failAttempt counts failures without a reported attempt too, because such a caller would dial
// without limit.
func (c Config) failAttempt(r Record, e event, now time.Time, jitter float64) Record {
	if !r.inUse() {
		r = c.begin(r, now)
	}
	r = c.end(r, e.text, now, jitter)
	r.NextAttempt = backoff.Later(r.NextAttempt, c.requestedTime(e, now, jitter))
	return r
}

func (c Config) requestedTime(e event, now time.Time, jitter float64) time.Time {
	return now.Add(backoff.AddJitter(min(e.wait, backoff.Max), jitter))
}

func (c Config) end(r Record, text string, now time.Time, jitter float64) Record {
	switch {
	case r.connected() && r.Held:
		r = r.disconnect()
		r.NextAttempt = now.Add(time.Duration(jitter * float64(maxRedialWait)))
		return r
	case r.inUse():
		return c.fail(r.disconnect(), text, now, jitter)
	}
	return r
}

func (r Record) disconnect() Record {
	if r.connected() {
		r.Disconnects++
		r.WasLost = true
		r.Held, r.ConnectedAt = false, time.Time{}
	}
	return r
}

func (c Config) fail(r Record, text string, now time.Time, jitter float64) Record {
	if r.Dialing {
		r.Dialing = false
		r.FailedAttempts++
	}
	r.LastError = text
	r.Record = c.rules().Fail(r.Record, now, jitter)
	return r
}

func (r Record) inBackoff(now time.Time) bool {
	return r.Failures > 0 || now.Before(r.NextAttempt)
}

func (c Config) rules() backoff.Rules {
	rules := backoff.Default()
	rules.Base, rules.RestartPause = c.BaseBackoff, c.RestartPause
	return rules
}

func (c Config) dead(r Record) bool { return c.rules().Dead(r.Record) }

func (r Record) countTo(now time.Time) Record {
	if r.CountedTo.IsZero() { // never tried
		return r
	}
	if d := now.Sub(r.CountedTo); d > 0 {
		if r.connected() {
			r.Up += d
		} else {
			r.Down += d
		}
	}
	r.CountedTo = now
	return r
}

func (c Config) state(r Record, now time.Time) State {
	switch {
	case r.connected():
		if r.Failures > 0 || !r.RecoveredAt.IsZero() && now.Before(r.RecoveredAt.Add(degradedFor)) {
			return Degraded
		}
		return Healthy
	case r.Failures == 0:
		return Disconnected
	case c.dead(r):
		return Dead
	}
	return Degraded
}

// unknownOutcome is the error of an attempt or connection during which our process ended.
const unknownOutcome = "our process ended before it was known whether the connection holds"

// restore converts a record of an earlier process, which may be damaged or have the times of a
// wrong clock.
func (c Config) restore(r Record, now time.Time, jitter float64) Record {
	r = c.sanitize(r, now)
	if !r.Held && r.inUse() {
		// A relay that makes this process crash must not be dialed faster because of that.
		at := backoff.Later(r.LastAttempt, r.ConnectedAt)
		if at.IsZero() {
			at = now
		}
		r = c.fail(r, unknownOutcome, at, jitter)
	}
	r.Dialing, r.Held, r.ConnectedAt = false, false, time.Time{}
	r, clean := c.restart(r, now)
	if !clean {
		r.Record = c.rules().Restart(r.Record, jitter)
	}
	if !r.LastAttempt.IsZero() {
		r.CountedTo = now
	}
	r.NextAttempt = backoff.Earlier(r.NextAttempt, now.Add(c.longestWait(r)))
	return r
}

// A working relay may be dialed immediately after each of up to cleanRestarts clean restarts within
// cleanWithin, which are no crash loop.
const (
	cleanRestarts = 3
	cleanWithin   = 10 * time.Minute
)

// restart counts a clean stop, and reports whether the relay may be dialed immediately. A failing
// relay keeps its place in the backoff.
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
	r.NextAttempt = time.Time{} // belongs to a connection that had not held yet
	return r, true
}

func (c Config) longestWait(r Record) time.Duration {
	rules := c.rules()
	return max(rules.LongestWait(r.Record), backoff.AddJitter(hostileBackoff, 1))
}

func (c Config) sanitize(r Record, now time.Time) Record {
	r.Record = r.Sanitize(now)
	if r.Failures == 0 {
		r.FailingSince = time.Time{}
	}
	for _, t := range []*time.Time{
		&r.LastSuccess, &r.RecoveredAt, &r.ConnectedAt, &r.CountedTo, &r.StoppedAt, &r.RestartsSince,
	} {
		*t = backoff.ClampPast(*t, now)
	}
	r.Restarts = backoff.ClampCount(r.Restarts)
	r.Held = r.Held && r.connected()
	r.Up = min(max(r.Up, 0), backoff.MaxDuration)
	r.Down = min(max(r.Down, 0), backoff.MaxDuration)
	r.LastError = graspsync.Printable(r.LastError)
	return r
}

func (r Record) forSaving() Record {
	if r.refused > 0 { // another process may have other settings
		r.NextAttempt = time.Time{}
	}
	r.refused = 0
	return r
}

func (c Config) status(r Record, now time.Time) Status {
	r = r.settle(now).countTo(now)
	s := Status{Record: r, State: c.state(r, now), Connected: r.connected()}
	s.NextAttempt = r.nextAttempt()
	return s
}

func (r Record) nextAttempt() time.Time {
	if r.connected() {
		return time.Time{}
	}
	return r.NextAttempt
}
