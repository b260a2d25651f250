package health

import (
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

// Record is the history of one relay. It is a plain value. The zero value is a relay that was never
// tried. Records can be saved as JSON. The meaning of their JSON fields never changes. Only a
// [RelayHealthTracker] creates and changes records. To display a relay, use [Status].
//
// Times are those of our clock. A zero time means never.
type Record struct {
	// Failures is the number of consecutive failures: failed attempts, and connections that dropped
	// before they had held long enough.
	Failures int `json:"failures,omitempty"`
	// FailingSince is the time of the first of these failures, moved forward by the time in which
	// the relay was due and no attempt was made.
	FailingSince time.Time `json:"failing_since,omitzero"`
	// LastFailure is the time of the last failure.
	LastFailure time.Time `json:"last_failure,omitzero"`
	// LastSuccess is the last time at which a connection had held long enough.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// RecoveredAt is the start of the first connection after failures.
	RecoveredAt time.Time `json:"recovered_at,omitzero"`
	// LastAttempt is the start of the last attempt.
	LastAttempt time.Time `json:"last_attempt,omitzero"`
	// NextAttempt is the earliest time of the next attempt. During an attempt it applies if no
	// outcome is reported.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// StoppedAt is the time of a clean stop of our process while the working relay was connected.
	// It is reset at the next start.
	StoppedAt time.Time `json:"stopped_at,omitzero"`
	// Restarts is the number of clean stops since RestartsSince.
	Restarts      int       `json:"restarts,omitempty"`
	RestartsSince time.Time `json:"restarts_since,omitzero"`
	// RateLimitedUntil is the end of a pause without requests.
	RateLimitedUntil time.Time `json:"rate_limited_until,omitzero"`
	// ConnectedAt is the start of the current connection.
	ConnectedAt time.Time `json:"connected_at,omitzero"`
	// Held is true after the current connection has held long enough.
	Held bool `json:"held,omitempty"`
	// Dialing is true between Attempt and the outcome.
	Dialing bool `json:"dialing,omitempty"`
	// Proven is true after any connection has held long enough.
	Proven bool `json:"proven,omitempty"`
	// LastError is the text of the last failure, escaped, at most [graspsync.MaxText] bytes.
	LastError string `json:"last_error,omitempty"`

	// Attempts is the number of attempts. Connections succeeded, FailedAttempts failed, and the
	// rest is running or was ended by us.
	Attempts       uint64 `json:"attempts,omitempty"`
	Connections    uint64 `json:"connections,omitempty"`
	FailedAttempts uint64 `json:"failed_attempts,omitempty"`
	// Disconnects is the number of connections that ended, but not by us. Reconnects is the number
	// of connections after a disconnect.
	Disconnects uint64 `json:"disconnects,omitempty"`
	Reconnects  uint64 `json:"reconnects,omitempty"`
	// WasLost is true from a disconnect to the next connection.
	WasLost bool `json:"was_lost,omitempty"`

	// Up and Down are the times with and without a connection, from the first attempt to CountedTo.
	// The time in which our process did not run is not included.
	Up        time.Duration `json:"up_ns,omitempty"`
	Down      time.Duration `json:"down_ns,omitempty"`
	CountedTo time.Time     `json:"counted_to,omitzero"`

	cleared backoff.Record // failures that the current connection reset
}

func (r Record) failing() backoff.Record {
	return backoff.Record{
		Failures: r.Failures, FailingSince: r.FailingSince, LastFailure: r.LastFailure,
		LastAttempt: r.LastAttempt, Next: r.NextAttempt,
	}
}

func (r Record) with(f backoff.Record) Record {
	r.Failures, r.FailingSince, r.LastFailure = f.Failures, f.FailingSince, f.LastFailure
	r.LastAttempt, r.NextAttempt = f.LastAttempt, f.Next
	return r
}

// inUse reports whether a connection exists or is being made.
func (r Record) inUse() bool { return r.Dialing || r.connected() }

func (r Record) connected() bool { return !r.ConnectedAt.IsZero() }
