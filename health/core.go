package health

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// kind is the kind of an event.
type kind uint8

const (
	attempt     kind = iota + 1 // a dial begins
	connected                   // it succeeded
	failed                      // it failed
	lost                        // the connection ended, not by our wish
	closed                      // we gave up the dial or ended the connection
	stopped                     // likewise, since our process stops
	rateLimited                 // the relay complained of too many requests
	hung                        // likewise, but the relay had not answered anything for a while
	hostile                     // it was caught cheating; the connection ends
	forgiven                    // an operator wants it tried now
	refused                     // our own settings forbid to dial it
)

// event is something that happened to one relay.
type event struct {
	kind kind
	text string        // failed, lost, hung, hostile, refused: why, escaped
	wait time.Duration // failed: what the relay asked us to wait, 0 if it did not

	until time.Time // rateLimited: when requests may be sent again
}

// step is the whole of the rules: the record after an event. jitter is a random
// value in [0, 1). It is pure, as is everything in this file.
func (c Config) step(r Record, e event, now time.Time, jitter float64) Record {
	r = c.settle(r, now).countTo(now)
	switch e.kind {
	case attempt:
		return c.attempt(r, now, jitter)
	case connected:
		return c.connect(c.reached(r), now, jitter)
	case failed:
		return c.failAttempt(c.reached(r), e, now, jitter)
	case refused:
		return c.refuse(r, e, now, jitter)
	case lost:
		return c.end(r, e.text, now, jitter)
	case hung:
		return c.hang(r, e.text, now, jitter)
	case closed:
		r.Dialing, r.Held, r.ConnectedAt = false, false, time.Time{}
	case stopped:
		if r.connected() {
			r.StoppedAt = now
		}
		r.Dialing, r.Held, r.ConnectedAt = false, false, time.Time{}
	case rateLimited:
		r.RateLimitedUntil = backoff.Later(backoff.Earlier(e.until, now.Add(c.mostRateLimit())), now.Add(c.fixed.RateLimit))
	case forgiven:
		r.NextAttempt, r.RateLimitedUntil = time.Time{}, time.Time{}
		if r.before != nil {
			was := *r.before
			was.failing.Next = time.Time{}
			r.before = &was
		}
	case hostile:
		r = c.fail(c.reached(r).disconnect(), e.text, now, jitter)
		r.NextAttempt = backoff.Later(r.NextAttempt, now.Add(c.rules().Lengthen(c.fixed.HostileBackoff, jitter)))
	}
	return r
}

// settle notices that the connection has held long enough to be a success. It is
// why no timer is needed: every reader and every event comes through here first.
func (c Config) settle(r Record, now time.Time) Record {
	held := r.ConnectedAt.Add(c.fixed.HeldFor)
	if !r.connected() || r.Held || now.Before(held) {
		return r
	}
	r.Held, r.cleared = true, r.failing()
	r.cleared.Next = time.Time{}
	r.LastSuccess = held
	r.Proven = true
	r.Failures = 0
	r.FailingSince = time.Time{}
	r.NextAttempt = time.Time{}
	return r
}

// attempt puts the next attempt where it would be if this one failed: a caller that
// never reports the outcome, or a process that dies of it, is held back as well.
func (c Config) attempt(r Record, now time.Time, jitter float64) Record {
	r = c.end(r, "", now, jitter)
	if r.before == nil || !r.before.refused {
		r.before = &before{failing: r.failing(), lastError: r.LastError}
	}
	r = c.begin(r, now)
	return r.with(c.rules().PutOff(r.failing(), r.Failures+1, now, jitter))
}

func (c Config) begin(r Record, now time.Time) Record {
	r = r.with(c.rules().Begin(r.failing(), now))
	if r.CountedTo.IsZero() {
		r.CountedTo = now
	}
	r.Attempts++
	r.StoppedAt = time.Time{} // it goes on: what may end it now is no stop in good order
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

// failAttempt counts even what no attempt was announced for: otherwise a caller
// that forgets to announce would dial without end.
func (c Config) failAttempt(r Record, e event, now time.Time, jitter float64) Record {
	if !r.inUse() {
		r = c.begin(r, now)
	}
	r = c.end(r, e.text, now, jitter)
	r.NextAttempt = backoff.Later(r.NextAttempt, now.Add(c.rules().Lengthen(min(e.wait, c.fixed.MaxBackoff), jitter)))
	return r
}

// refuse puts off what our own settings refuse, as if the relay had failed: to look up its name again and
// again costs others something, and us. But it is none of its failures: the next process, which may have
// other settings, begins with those that there were before.
func (c Config) refuse(r Record, e event, now time.Time, jitter float64) Record {
	if !r.inUse() || r.before == nil { // no attempt was announced for it
		r = c.attempt(r, now, jitter)
	}
	own := *r.before
	own.refused = true
	r.before, r.Dialing = &own, false // that attempt was given up by us
	return c.fail(r, e.text, now, jitter)
}

// reached takes back what we refused, once the relay has a say itself.
func (c Config) reached(r Record) Record {
	if r.before != nil && r.before.refused {
		failing := r.before.failing
		if r.inUse() {
			failing = c.rules().Begin(failing, r.LastAttempt)
		}
		r, r.LastError = r.with(failing), r.before.lastError
	}
	r.before = nil
	return r
}

// end ends the connection that stands or the attempt that is under way. If
// there is neither, nothing happened: its end has been accounted for.
func (c Config) end(r Record, text string, now time.Time, jitter float64) Record {
	switch {
	case r.connected() && r.Held:
		r = r.disconnect()
		r.NextAttempt = now.Add(time.Duration(jitter * float64(c.fixed.RedialWithin)))
		return r
	case r.inUse():
		return c.fail(r.disconnect(), text, now, jitter)
	}
	return r
}

// hungAtOnce is within which a connection that hangs has never been of use: it goes on from the
// failures before it, however well it held.
const hungAtOnce = time.Hour

// hang ends a connection that stands and is of no use. That is a failure, however long it held.
func (c Config) hang(r Record, text string, now time.Time, jitter float64) Record {
	if !r.connected() {
		return r
	}
	if r.Held && now.Sub(r.ConnectedAt) < hungAtOnce {
		r = r.with(r.cleared)
	}
	return c.fail(r.disconnect(), text, now, jitter)
}

// disconnect takes note that no connection stands any more.
func (r Record) disconnect() Record {
	if r.connected() {
		r.Disconnects++
		r.WasLost = true
		r.Held, r.ConnectedAt = false, time.Time{}
	}
	return r
}

// fail counts a failure. The next attempt never comes nearer by one.
func (c Config) fail(r Record, text string, now time.Time, jitter float64) Record {
	if r.Dialing {
		r.Dialing = false
		r.FailedAttempts++
	}
	r.LastError = text
	return r.with(c.rules().Fail(r.failing(), now, jitter))
}

// remember reports whether forgetting the record would allow something sooner than
// the rules do.
func (r Record) remember(now time.Time) bool {
	return r.Failures > 0 || now.Before(r.NextAttempt) || now.Before(r.RateLimitedUntil)
}

// rules are those of the backoff.
func (c Config) rules() backoff.Rules {
	return backoff.Rules{
		Base: c.BaseBackoff, Max: c.fixed.MaxBackoff, DeadAfter: c.fixed.DeadAfter, DeadInterval: c.fixed.DeadInterval,
		RestartPause: c.RestartPause, Jitter: c.fixed.Jitter,
	}
}

// dead reports whether failures alone have been seen for long enough.
func (c Config) dead(r Record) bool { return c.rules().Dead(r.failing()) }

// countTo adds the time since the last event to what the relay was up or down.
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

// state expects a record that is settled.
func (c Config) state(r Record, now time.Time) State {
	switch {
	case now.Before(r.RateLimitedUntil) && (r.connected() || r.Failures == 0):
		return RateLimited
	case r.connected():
		if r.Failures > 0 || !r.RecoveredAt.IsZero() && now.Before(r.RecoveredAt.Add(c.fixed.DegradedFor)) {
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
		&r.LastSuccess, &r.RecoveredAt, &r.ConnectedAt, &r.CountedTo, &r.StoppedAt, &r.RestartsSince,
	} {
		*t = backoff.Past(*t, now)
	}
	r.RateLimitedUntil = backoff.Earlier(backoff.Plausible(r.RateLimitedUntil), now.Add(c.mostRateLimit()))
	r.Restarts = backoff.Count(r.Restarts)
	r.Held = r.Held && r.connected()
	r.Up = min(max(r.Up, 0), backoff.Longest)
	r.Down = min(max(r.Down, 0), backoff.Longest)
	r.LastError = graspsync.Printable(r.LastError)
	return r
}

// saved is the record as it is handed out for saving.
func (r Record) saved() Record {
	if b := r.before; b != nil && b.refused {
		failing := b.failing
		if r.inUse() { // a process that dies of it is held back
			failing.LastAttempt = r.LastAttempt
		}
		r, r.LastError = r.with(failing), b.lastError
	}
	r.before, r.cleared = nil, backoff.Record{}
	for _, t := range []*time.Time{
		&r.FailingSince, &r.LastFailure, &r.LastSuccess, &r.RecoveredAt, &r.LastAttempt,
		&r.NextAttempt, &r.RateLimitedUntil, &r.ConnectedAt, &r.CountedTo,
		&r.StoppedAt, &r.RestartsSince,
	} {
		*t = backoff.Saved(*t)
	}
	return r
}

// status is pure.
func (c Config) status(r Record, now time.Time) Status {
	r = c.settle(r, now).countTo(now)
	s := Status{
		State:            c.state(r, now),
		Connected:        r.connected(),
		KnownGood:        r.Proven,
		Failures:         r.Failures,
		FailingSince:     r.FailingSince,
		LastFailure:      r.LastFailure,
		LastSuccess:      r.LastSuccess,
		LastAttempt:      r.LastAttempt,
		NextAttempt:      r.next(),
		RateLimitedUntil: r.RateLimitedUntil,
		ConnectedSince:   r.ConnectedAt,
		LastError:        r.LastError,
		Attempts:         r.Attempts,
		Connections:      r.Connections,
		FailedAttempts:   r.FailedAttempts,
		Disconnects:      r.Disconnects,
		Reconnects:       r.Reconnects,
		Uptime:           r.Up,
		Downtime:         r.Down,
	}
	if !now.Before(s.RateLimitedUntil) {
		s.RateLimitedUntil = time.Time{}
	}
	return s
}

// next is when the next attempt may be made; zero while connected.
func (r Record) next() time.Time {
	if r.connected() {
		return time.Time{}
	}
	return r.NextAttempt
}
