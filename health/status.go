package health

import (
	"fmt"
	"time"
)

// State is the state of a relay. Its numbers are those of the metric ngit_sync_relay_status.
type State uint8

const (
	// Healthy is connected.
	Healthy State = iota + 1
	// Disconnected is never tried, or neither connected nor failing.
	Disconnected
	// Degraded is failing, connected or not, or recently recovered.
	Degraded
	// Dead is without success for a day.
	Dead
	// RateLimited relays asked for fewer requests. Connections stay open.
	RateLimited
)

// String returns the name of the state in lower case.
func (s State) String() string {
	switch s {
	case Healthy:
		return "healthy"
	case Disconnected:
		return "disconnected"
	case Degraded:
		return "degraded"
	case Dead:
		return "dead"
	case RateLimited:
		return "rate limited"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText returns the text of String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is the current status of a relay. Zero times mean never. The counters include earlier
// processes if records are restored.
type Status struct {
	State     State
	Connected bool
	// KnownGood is true after a connection has held for a minute.
	KnownGood bool
	// Failures is the number of consecutive failures.
	Failures int
	// FailingSince is the time of the first of these failures, without times in which no attempt
	// was made.
	FailingSince time.Time
	LastFailure  time.Time
	// LastSuccess is the last time at which a connection had held for a minute.
	LastSuccess time.Time
	LastAttempt time.Time
	// NextAttempt is the earliest time of the next attempt. It is zero while connected, and if an
	// attempt may be made now.
	NextAttempt time.Time
	// RateLimitedUntil is the end of a pause without requests, if it is in the future.
	RateLimitedUntil time.Time
	ConnectedSince   time.Time
	// LastError is the text of the last failure: one printable line of at most [graspsync.MaxText]
	// bytes. It may be text of the relay.
	LastError string

	// Attempts is the number of attempts. Connections succeeded, FailedAttempts failed, and the
	// rest is running or was ended by us.
	Attempts       uint64
	Connections    uint64
	FailedAttempts uint64
	// Disconnects is the number of connections that ended, but not by us.
	Disconnects uint64
	// Reconnects is the number of connections after a disconnect.
	Reconnects uint64

	// Uptime and Downtime are the times with and without a connection since the first attempt. The
	// time in which our process did not run is not included.
	Uptime   time.Duration // uptime_seconds
	Downtime time.Duration // downtime_seconds
}

// UptimeShare returns the fraction of time with a connection, from 0 to 1, and 0 for a relay that
// was never tried.
func (s Status) UptimeShare() float64 {
	if s.Uptime <= 0 {
		return 0
	}
	return float64(s.Uptime) / (float64(s.Uptime) + float64(s.Downtime))
}
