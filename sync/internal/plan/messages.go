package plan

import (
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// Input is something that happened. Inputs about a connection carry the epoch of
// the [Dial] that made it; those of an earlier epoch, or about a relay that is no
// longer known, are ignored.
type Input interface{ input() }

// The inputs.
type (
	// Bootstrap makes a relay one that is never forgotten, or with Not one like any other.
	Bootstrap struct {
		Relay graspsync.RelayURL
		Not   bool `json:",omitempty"`
	}
	// Retry ends all waits that failures of a relay have brought it: somebody wants it tried now.
	Retry struct{ Relay graspsync.RelayURL }
	// Resync has a relay asked for everything anew, whatever is confirmed of it.
	Resync struct{ Relay graspsync.RelayURL }
	// ResyncRepo has all relays of a repository asked anew for what is wanted of that.
	ResyncRepo struct{ Ref graspsync.RepoRef }
	// Changes are what a batch window of the own feed brought.
	Changes struct {
		Repos       []RepoChange
		Roots       []RootChange
		Descendants []DescendantChange
	}
	// Snapshot is all there is to want; whatever it does not name is not wanted.
	Snapshot Changes
	// Connected says that a dial succeeded.
	Connected struct {
		Relay  graspsync.RelayURL
		Epoch  uint64
		Limits relaylimits.Requests
	}
	// DialFailed says that one did not.
	DialFailed struct {
		Relay   graspsync.RelayURL
		Epoch   uint64
		RetryAt time.Time
		// NotDialed: the relay knows nothing of it, since we refused.
		NotDialed bool
	}
	// Lost says that a connection has ended.
	Lost struct {
		Relay   graspsync.RelayURL
		Epoch   uint64
		AliveAt time.Time // last sign of life
		RetryAt time.Time
		// Cursors says how far the batches had got that were under way.
		Cursors map[BatchID][]Cursor
	}
	// Done says that a batch has ended and that everything it brought is settled.
	Done struct {
		Relay  graspsync.RelayURL
		Epoch  uint64
		Batch  BatchID
		Result Result
		// Cursors of the queries of a failed batch, in order.
		Cursors []Cursor
		// Reconciled: NIP-77 was used.
		Reconciled bool
		// Disproved: what was confirmed by NIP-77 may not be here.
		Disproved bool `json:",omitempty"`
		// Unsaved: it failed since what it brought could not be saved here.
		Unsaved bool
		// Late: it failed only since its time was over, in which something came.
		Late bool
	}
	// Saving says that nothing that comes can be saved, or that it can again.
	Saving struct{ Nothing bool }
	// Skipped says that of what came live since a moment something was left out that is to
	// be asked for.
	Skipped struct {
		Relay graspsync.RelayURL
		Epoch uint64
		Since time.Time
	}
	// LiveClosed says that the relay ended a standing subscription, and why; or that one that
	// was opened as Last gave way.
	LiveClosed struct {
		Relay   graspsync.RelayURL
		Epoch   uint64
		Live    LiveID
		Why     wire.Refusal
		GaveWay bool `json:",omitempty"`
		// Stood is for how long it had been accepted, since its EOSE; 0: it was refused at the opening.
		Stood time.Duration `json:",omitempty"`
	}
	// LimitsChanged says that a connection may be asked for something else than was
	// known when it was made: what is followed is fitted into that.
	LimitsChanged struct {
		Relay  graspsync.RelayURL
		Epoch  uint64
		Limits relaylimits.Requests
	}
	// Named has events fetched from a relay by their ids.
	Named struct {
		Relay graspsync.RelayURL // zero: any
		IDs   []graspsync.EventID
	}
	// Unserved are ids that a relay said it had, and did not serve: other relays are
	// asked for them.
	Unserved struct {
		Relay graspsync.RelayURL
		IDs   []graspsync.EventID
	}
	// Restore is what [Plan.Kept] returned before a restart. It comes first.
	Restore struct{ Relays []Kept }
	// Settled says that everything received before At was dealt with: it is durable,
	// or refused for good.
	Settled struct{ At time.Time }
	// ClockJumped says that the wall clock was set by that much: forward, or back if
	// it is negative.
	ClockJumped struct{ By time.Duration }
	// RateLimited says that the relay wants to be left alone for a while.
	RateLimited struct {
		Relay graspsync.RelayURL
		Epoch uint64
		Until time.Time
	}
	// Authors have written events that are stored.
	Authors []graspsync.PubKey
	// Tick says that the time of [Plan.NextWake] has come.
	Tick struct{}
)

// RepoChange sets what is wanted of a repository.
type RepoChange struct {
	Ref    graspsync.RepoRef
	Relays []graspsync.RelayURL // those that its owner names first
	Level  Level
}

// RootChange sets the repositories that a root event belongs to; none means that
// it is gone. Where there are too many for a repository, the newest are followed.
type RootChange struct {
	ID        graspsync.EventID
	Repos     []graspsync.RepoRef
	CreatedAt nostr.Timestamp
}

// Result says how a batch ended.
type Result uint8

const (
	// Complete: everything that the relay has was fetched.
	Complete Result = iota
	// Gaps: all was done that can be done now, but some events could not be had or
	// their absence not be proven. The items count as confirmed until the next
	// pass over history.
	Gaps
	// Failed: it stopped before its end; what is left is asked for again.
	Failed
	// Refused: the relay will not answer this to us. It is asked again rarely.
	Refused
)

func (Bootstrap) input()     {}
func (Retry) input()         {}
func (Resync) input()        {}
func (ResyncRepo) input()    {}
func (Changes) input()       {}
func (Snapshot) input()      {}
func (Connected) input()     {}
func (DialFailed) input()    {}
func (Lost) input()          {}
func (Done) input()          {}
func (LiveClosed) input()    {}
func (Skipped) input()       {}
func (Saving) input()        {}
func (RateLimited) input()   {}
func (Authors) input()       {}
func (Tick) input()          {}
func (LimitsChanged) input() {}
func (Named) input()         {}
func (Unserved) input()      {}
func (Restore) input()       {}
func (Settled) input()       {}
func (ClockJumped) input()   {}

// Effect is something to be done.
type Effect interface{ effect() }

// The effects. Those of one relay must be carried out in the order in which they
// were returned.
type (
	// Dial asks for a connection; the answer is Connected or DialFailed with the
	// same epoch.
	Dial struct {
		Relay graspsync.RelayURL
		Epoch uint64
	}
	// Hangup ends a connection, or an attempt, that is no longer wanted. No Lost
	// needs to follow.
	Hangup struct {
		Relay graspsync.RelayURL
		Epoch uint64
	}
	// Forget says that nothing about the relay is wanted any more.
	Forget struct{ Relay graspsync.RelayURL }
	// OpenLive opens a standing subscription.
	OpenLive struct {
		Relay   graspsync.RelayURL
		Epoch   uint64
		Live    LiveID
		Filters standing.Filters
		// Last: it is of layer 4. It is opened only if the relay has a place that nothing
		// else needs, and gives way when something does.
		Last bool `json:",omitempty"`
	}
	// CloseLive closes one.
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
	// Cancel ends a batch whose deadline has passed without an answer.
	Cancel struct {
		Relay graspsync.RelayURL
		Epoch uint64
		Batch BatchID
	}
	// Confirmed reports that items were fetched once and are followed live now.
	Confirmed struct {
		Relay graspsync.RelayURL
		Items int
		Gaps  bool
	}
	// Reset reports that what was confirmed on a relay is fetched anew.
	Reset struct {
		Relay graspsync.RelayURL
		Daily bool
	}
	// Incomplete says that there may be room again for what was dropped at a bound:
	// a Snapshot is wanted.
	Incomplete struct{}
	// Dropped counts what a bound kept out.
	Dropped struct {
		Reason string
		Count  int
	}
)

func (Dial) effect()       {}
func (Hangup) effect()     {}
func (Forget) effect()     {}
func (OpenLive) effect()   {}
func (CloseLive) effect()  {}
func (Start) effect()      {}
func (Cancel) effect()     {}
func (Confirmed) effect()  {}
func (Reset) effect()      {}
func (Incomplete) effect() {}
func (Dropped) effect()    {}

// DescendantChange sets the repositories that a descendant belongs to; none means that it is
// gone.
type DescendantChange struct {
	Of    filters.Descendant
	Repos []graspsync.RepoRef
}
