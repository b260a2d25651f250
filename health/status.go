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

// Status is the current status of a relay. Its fields are those of [Record].
type Status struct {
	State     State
	Connected bool
	// KnownGood is true after a connection has held for a minute.
	KnownGood    bool
	Failures     int
	FailingSince time.Time
	LastFailure  time.Time
	LastSuccess  time.Time
	LastAttempt  time.Time
	// NextAttempt is zero while connected, and if an attempt may be made now.
	NextAttempt time.Time
	// RateLimitedUntil is the end of a pause without requests, if it is in the future.
	RateLimitedUntil time.Time
	ConnectedSince   time.Time
	// LastError is one printable line of at most [graspsync.MaxText] bytes, perhaps of the relay.
	LastError string

	Attempts       uint64
	Connections    uint64
	FailedAttempts uint64
	Disconnects    uint64
	Reconnects     uint64

	Uptime   time.Duration // uptime_seconds
	Downtime time.Duration // downtime_seconds
}

// UptimeShare returns the fraction of time with a connection, from 0 to 1.
func (s Status) UptimeShare() float64 {
	if s.Uptime <= 0 {
		return 0
	}
	return float64(s.Uptime) / (float64(s.Uptime) + float64(s.Downtime))
}
