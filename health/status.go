package health

import "fmt"

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
	// RateLimited relays asked for fewer requests. Connections stay open. The tracker does not know it.
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

// Status is the current status of a relay. NextAttempt is zero while connected, and if an attempt
// may be made now.
type Status struct {
	Record
	State     State
	Connected bool
}

// UptimeShare returns the fraction of time with a connection, from 0 to 1.
func (s Status) UptimeShare() float64 {
	if s.Up <= 0 {
		return 0
	}
	return float64(s.Up) / (float64(s.Up) + float64(s.Down))
}
