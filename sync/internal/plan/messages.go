package plan

import (
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// Input is an event for the plan. Inputs of an earlier epoch than that of the last [Dial], or of a
// forgotten relay, are ignored.
type Input interface{ apply(p *Plan) }

// The inputs.
type (
	// Bootstrap makes a relay a bootstrap relay, or an ordinary one if Not is set.
	Bootstrap struct {
		Relay graspsync.RelayURL
		Not   bool `json:",omitempty"`
	}
	// Retry ends all waits of a relay.
	Retry struct{ Relay graspsync.RelayURL }
	// Resync fetches everything from a relay again.
	Resync struct{ Relay graspsync.RelayURL }
	// ResyncRepo fetches a repository again from all its relays.
	ResyncRepo struct{ Ref graspsync.RepoRef }
	// Changes are the changes of a batch window.
	Changes struct {
		Repos       []RepoChange
		Roots       []RootChange
		Descendants []DescendantChange
	}
	// Snapshot contains everything that is wanted.
	Snapshot Changes
	// Connected means that a dial has succeeded.
	Connected struct {
		Relay  graspsync.RelayURL
		Epoch  uint64
		Limits relaylimits.Requests
	}
	// DialFailed means that a dial has failed.
	DialFailed struct {
		Relay   graspsync.RelayURL
		Epoch   uint64
		RetryAt time.Time
		// NotDialed means that a local reason prevented the attempt.
		NotDialed bool
	}
	// Lost means that a connection has ended.
	Lost struct {
		Relay   graspsync.RelayURL
		Epoch   uint64
		AliveAt time.Time // last sign of life
		RetryAt time.Time
		Cursors map[BatchID][]Cursor
	}
	// Done means that a batch has ended and all its events are settled.
	Done struct {
		Relay      graspsync.RelayURL
		Epoch      uint64
		Batch      BatchID
		Result     Result
		Cursors    []Cursor
		Reconciled bool
		// Disproved means that NIP-77 hid events, so confirmed items may be incomplete.
		Disproved bool `json:",omitempty"`
		// Unsaved means that the batch failed because an event could not be saved.
		Unsaved bool
		// Late means that the batch failed only because of its deadline.
		Late bool
	}
	// Saves means that events can be saved again. Relays whose batches could not be saved repeat their
	// failed batches immediately.
	Saves struct{}
	// Skipped means that live events since a moment were dropped and must be fetched.
	Skipped struct {
		Relay graspsync.RelayURL
		Epoch uint64
		Since time.Time
	}
	// LiveClosed means that the relay closed a subscription.
	LiveClosed struct {
		Relay graspsync.RelayURL
		Epoch uint64
		Live  LiveID
		Why   wire.Refusal
		// Stood is the time since its EOSE, 0 if it was refused when opened.
		Stood time.Duration `json:",omitempty"`
	}
	// LimitsChanged reports new limits of a connected relay.
	LimitsChanged struct {
		Relay  graspsync.RelayURL
		Epoch  uint64
		Limits relaylimits.Requests
	}
	// Named requests events by id.
	Named struct {
		Relay graspsync.RelayURL // zero: any
		IDs   []graspsync.EventID
	}
	// Unserved are ids that a relay announced and did not serve. They are requested from other
	// relays.
	Unserved struct {
		Relay graspsync.RelayURL
		IDs   []graspsync.EventID
	}
	// Restore contains the result of [Plan.Kept] before a restart. It is the first input.
	Restore struct{ Relays []Kept }
	// Settled means that everything received before At is durable or rejected.
	Settled struct{ At time.Time }
	// ClockJumped means that the wall clock was set forward by this time, or back if it is
	// negative.
	ClockJumped struct{ By time.Duration }
	// RateLimited means that the relay accepts no new requests before Until.
	RateLimited struct {
		Relay graspsync.RelayURL
		Epoch uint64
		Until time.Time
	}
	// Authors are authors of stored events.
	Authors []graspsync.PubKey
	// Tick means that the time of [Plan.NextWake] has come.
	Tick struct{}
)

// RepoChange sets the level and the relays of a repository.
type RepoChange struct {
	Ref    graspsync.RepoRef
	Relays []graspsync.RelayURL // listed by the owner first
	Level  Level
}

// RootChange sets the repositories of a root event. An empty list means that the event is gone.
type RootChange struct {
	ID        graspsync.EventID
	Repos     []graspsync.RepoRef
	CreatedAt nostr.Timestamp
}

// Result is the result of a batch.
type Result uint8

const (
	// Complete means that all events of the relay were fetched.
	Complete Result = iota
	// Gaps means that some events could not be fetched. The items count as confirmed until the next
	// pass.
	Gaps
	// Failed means that the batch ended early. The rest is requested again.
	Failed
	// Refused means that the relay refuses the request. It is repeated after the longest wait.
	Refused
)

// Effect is an order of the plan.
type Effect interface{ effect() }

// The effects, to be performed in order for each relay.
type (
	// Dial opens a connection. The answer is Connected or DialFailed with the same epoch.
	Dial struct {
		Relay graspsync.RelayURL
		Epoch uint64
	}
	// Hangup closes a connection or an attempt. Lost is optional.
	Hangup struct {
		Relay graspsync.RelayURL
		Epoch uint64
	}
	// Forget means that nothing is wanted from the relay any more.
	Forget struct{ Relay graspsync.RelayURL }
	// OpenLive opens a subscription.
	OpenLive struct {
		Relay   graspsync.RelayURL
		Epoch   uint64
		Live    LiveID
		Filters []nostr.Filter
	}
	// CloseLive closes a subscription.
	CloseLive struct {
		Relay graspsync.RelayURL
		Epoch uint64
		Live  LiveID
	}
	// Start starts a batch.
	Start struct {
		Relay graspsync.RelayURL
		Epoch uint64
		Batch Batch
	}
	// Cancel ends a batch whose deadline has passed.
	Cancel struct {
		Relay graspsync.RelayURL
		Epoch uint64
		Batch BatchID
	}
	// Reset means that the confirmed items of a relay are fetched again.
	Reset struct {
		Relay graspsync.RelayURL
		Daily bool
	}
	// Dropped counts items left out by a limit.
	Dropped struct {
		Reason string
		Count  int
	}
)

func (Dial) effect()      {}
func (Hangup) effect()    {}
func (Forget) effect()    {}
func (OpenLive) effect()  {}
func (CloseLive) effect() {}
func (Start) effect()     {}
func (Cancel) effect()    {}
func (Reset) effect()     {}
func (Dropped) effect()   {}

// DescendantChange sets the repositories of a descendant. An empty list means that it is gone.
type DescendantChange struct {
	Of    filters.Descendant
	Repos []graspsync.RepoRef
}
