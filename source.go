package graspsync

import (
	"fmt"
)

// Source says where an event came from. The zero value is a direct submission.
type Source struct {
	Kind SourceKind
	// Relay that the event was read from; zero for a direct submission.
	Relay RelayURL
}

// SourceKind is the way by which an event came.
type SourceKind uint8

// The ways by which events come.
const (
	// Direct: a client of our relay submitted it.
	Direct SourceKind = iota
	// Live: it came on a standing subscription.
	Live
	// CatchUp: it was fetched as history.
	CatchUp
	// Daily: it was fetched by the daily pass over history.
	Daily
)

// String returns the name of the kind as the metrics label "source" has it.
func (k SourceKind) String() string {
	switch k {
	case Direct:
		return "direct"
	case Live:
		return "live"
	case CatchUp:
		return "catchup"
	case Daily:
		return "daily"
	}
	return fmt.Sprintf("source(%d)", uint8(k))
}
