package health

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/graspsync/graspsync/internal/seconds"
)

// State sums up how a relay is doing. Its numbers are those of the metric
// ngit_sync_relay_status.
type State uint8

// The states of a relay.
const (
	// Healthy: connected.
	Healthy State = iota + 1
	// Disconnected: never tried, or not connected but not failing either.
	Disconnected
	// Degraded: failing, connected or not, or recovered a short time ago.
	Degraded
	// Dead: has done nothing but fail for a day.
	Dead
	// RateLimited: it asked us for fewer requests; connections stay.
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

// MarshalText returns what String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is what can be said of a relay at one moment. Zero times mean never. The
// counters go on over restarts if the records do.
type Status struct {
	State     State `json:"state"`
	Connected bool  `json:"connected"`
	// KnownGood is true once a connection had held for a minute.
	KnownGood bool `json:"known_good"`
	// Failures in a row.
	Failures int `json:"failures"`
	// FailingSince is when these failures began, less the time in which nobody tried.
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastFailure  time.Time `json:"last_failure,omitzero"`
	// LastSuccess is when a connection last had held for a minute.
	LastSuccess time.Time `json:"last_success,omitzero"`
	LastAttempt time.Time `json:"last_attempt,omitzero"`
	// NextAttempt is the earliest time for the next attempt; zero while connected,
	// and for a relay that can be tried at once.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	// RateLimitedUntil is when requests may be sent again, if it is in the future.
	RateLimitedUntil time.Time `json:"rate_limited_until,omitzero"`
	ConnectedSince   time.Time `json:"connected_since,omitzero"`
	// LastError is the text of the last failure: one printable line of at most
	// [graspsync.MaxText] bytes. A stranger may have written it.
	LastError string `json:"last_error,omitempty"`

	// Attempts, of which Connections succeeded and FailedAttempts failed; the rest
	// is under way or was given up by us.
	Attempts       uint64 `json:"attempts"`
	Connections    uint64 `json:"connections"`
	FailedAttempts uint64 `json:"failed_attempts"`
	// Disconnects counts connections that ended otherwise than by our own wish.
	Disconnects uint64 `json:"disconnects"`
	// Reconnects counts connections that came after a disconnect.
	Reconnects uint64 `json:"reconnects"`

	// Uptime and Downtime are how long the relay was connected and not, since the
	// first attempt; the time in which our process did not run is in neither.
	Uptime   time.Duration `json:"-"` // uptime_seconds
	Downtime time.Duration `json:"-"` // downtime_seconds
}

// plainStatus is a Status without its methods.
type plainStatus Status

// statusText is a Status as JSON has it.
type statusText struct {
	plainStatus
	Uptime   seconds.Seconds `json:"uptime_seconds"`
	Downtime seconds.Seconds `json:"downtime_seconds"`
}

// MarshalJSON has durations in seconds.
func (s Status) MarshalJSON() ([]byte, error) {
	return json.Marshal(statusText{plainStatus(s), seconds.Seconds(s.Uptime), seconds.Seconds(s.Downtime)})
}

// UnmarshalJSON reads what MarshalJSON gives.
func (s *Status) UnmarshalJSON(text []byte) error {
	var t statusText
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*s = Status(t.plainStatus)
	s.Uptime, s.Downtime = time.Duration(t.Uptime), time.Duration(t.Downtime)
	return nil
}

// UptimeShare returns the share of the time that the relay was connected, from 0 to
// 1; 0 for a relay that was never tried.
func (s Status) UptimeShare() float64 {
	if s.Uptime <= 0 {
		return 0
	}
	return float64(s.Uptime) / (float64(s.Uptime) + float64(s.Downtime))
}
