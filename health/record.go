package health

import (
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

// Record is the history of one relay. The zero value was never tried. Records can be saved as JSON,
// whose fields never change their meaning.
//
// Times are those of our clock. A zero time means never.
type Record struct {
	backoff.Record
	// LastSuccess is the last time at which a connection had held long enough.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// RecoveredAt is the start of the first connection after failures.
	RecoveredAt time.Time `json:"recovered_at,omitzero"`
	// StoppedAt is the time of a clean stop of our process while the relay was connected.
	StoppedAt time.Time `json:"stopped_at,omitzero"`
	// Restarts is the number of clean stops since RestartsSince.
	Restarts      int       `json:"restarts,omitempty"`
	RestartsSince time.Time `json:"restarts_since,omitzero"`
	// ConnectedAt is the start of the current connection.
	ConnectedAt time.Time `json:"connected_at,omitzero"`
	// Held is true after the current connection has held long enough, Proven after any has, and
	// Dialing between Attempt and the outcome.
	Held    bool `json:"held,omitempty"`
	Dialing bool `json:"dialing,omitempty"`
	Proven  bool `json:"proven,omitempty"`
	// LastError is the text of the last failure, escaped, at most [graspsync.MaxText] bytes.
	LastError string `json:"last_error,omitempty"`

	// Connections succeeded, FailedAttempts failed. Other attempts are running or were ended by us.
	Attempts       uint64 `json:"attempts,omitempty"`
	Connections    uint64 `json:"connections,omitempty"`
	FailedAttempts uint64 `json:"failed_attempts,omitempty"`
	// Disconnects is the number of connections that ended, but not by us, and Reconnects the number
	// of connections after one.
	Disconnects uint64 `json:"disconnects,omitempty"`
	Reconnects  uint64 `json:"reconnects,omitempty"`
	// WasLost is true from a disconnect to the next connection.
	WasLost bool `json:"was_lost,omitempty"`

	// Up and Down are the times with and without a connection, from the first attempt to CountedTo,
	// while our process ran.
	Up        time.Duration `json:"up_ns,omitempty"`
	Down      time.Duration `json:"down_ns,omitempty"`
	CountedTo time.Time     `json:"counted_to,omitzero"`

	refused int // dials in a row that our own settings forbade
}

func (r Record) inUse() bool { return r.Dialing || r.connected() }

func (r Record) connected() bool { return !r.ConnectedAt.IsZero() }
