package health

import (
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

// Record is all that is remembered about one relay. It is a plain value; its zero
// value is a relay that was never tried. As JSON it can be kept over a restart; the
// names of its JSON fields never change their meaning. Records are made and changed
// by a [RelayHealthTracker]; read them, but derive nothing that [Status] tells.
//
// Times are those of our clock; a zero time means never.
type Record struct {
	// Failures in a row: attempts that failed, and connections that dropped before
	// they had held long enough.
	Failures int `json:"failures,omitempty"`
	// FailingSince is when the first of these failures happened, moved on by the
	// time in which the relay was due and nobody tried.
	FailingSince time.Time `json:"failing_since,omitzero"`
	// LastFailure is when a failure was last counted.
	LastFailure time.Time `json:"last_failure,omitzero"`
	// LastSuccess is when a connection last had held long enough.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// RecoveredAt is when the first connection after failures began.
	RecoveredAt time.Time `json:"recovered_at,omitzero"`
	// LastAttempt is when an attempt was last begun.
	LastAttempt time.Time `json:"last_attempt,omitzero"`
	// NextAttempt is the earliest time for the next attempt. While one is under way
	// it is what holds if nothing is ever heard of that one.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// StoppedAt is when our process stopped in good order while the relay, which had
	// answered, was connected. It is zero again once a process has started.
	StoppedAt time.Time `json:"stopped_at,omitzero"`
	// Restarts are how many such stops there were since RestartsSince.
	Restarts      int       `json:"restarts,omitempty"`
	RestartsSince time.Time `json:"restarts_since,omitzero"`
	// RateLimitedUntil is when requests may be sent again.
	RateLimitedUntil time.Time `json:"rate_limited_until,omitzero"`
	// ConnectedAt is when the connection that stands began.
	ConnectedAt time.Time `json:"connected_at,omitzero"`
	// Held is true once that connection has held long enough.
	Held bool `json:"held,omitempty"`
	// Dialing is true between Attempt and the outcome.
	Dialing bool `json:"dialing,omitempty"`
	// Proven is true once a connection had held long enough.
	Proven bool `json:"proven,omitempty"`
	// LastError is the text of the last failure, escaped, at most [graspsync.MaxText] bytes.
	LastError string `json:"last_error,omitempty"`

	// Attempts, by outcome: Connections and FailedAttempts; the rest were given
	// up by us or are under way.
	Attempts       uint64 `json:"attempts,omitempty"`
	Connections    uint64 `json:"connections,omitempty"`
	FailedAttempts uint64 `json:"failed_attempts,omitempty"`
	// Disconnects counts connections that ended otherwise than by our own wish,
	// Reconnects the connections that came after one of these.
	Disconnects uint64 `json:"disconnects,omitempty"`
	Reconnects  uint64 `json:"reconnects,omitempty"`
	// WasLost is true from a disconnect to the next connection.
	WasLost bool `json:"was_lost,omitempty"`

	// Up and Down are how long the relay was connected and not, from the first
	// attempt to CountedTo; the time in which our process did not run is in neither.
	Up        time.Duration `json:"up_ns,omitempty"`
	Down      time.Duration `json:"down_ns,omitempty"`
	CountedTo time.Time     `json:"counted_to,omitzero"`

	cleared backoff.Record // the failures that the connection cleared when it had held

	before *before // nil: no attempt is under way, and the last one was not refused by us
}

// before is what a record said of failures before an attempt, or before the first of several that our own
// settings refused. It does not change.
type before struct {
	failing   backoff.Record
	lastError string
	refused   bool // it was not the relay that failed since then
}

// failing is the part of a record that the rules of backoff are about.
func (r Record) failing() backoff.Record {
	return backoff.Record{
		Failures: r.Failures, FailingSince: r.FailingSince, LastFailure: r.LastFailure,
		LastAttempt: r.LastAttempt, Next: r.NextAttempt,
	}
}

// with is the record with that part replaced.
func (r Record) with(f backoff.Record) Record {
	r.Failures, r.FailingSince, r.LastFailure = f.Failures, f.FailingSince, f.LastFailure
	r.LastAttempt, r.NextAttempt = f.LastAttempt, f.Next
	return r
}

// inUse reports whether a connection stands or is being made.
func (r Record) inUse() bool { return r.Dialing || r.connected() }

func (r Record) connected() bool { return !r.ConnectedAt.IsZero() }
