package purgatory

import (
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
)

// Observation is something that happened: [HoldStarted], [HoldEnded], [RevivalEnded], [FetchEnded]
// or [AttemptEnded].
type Observation interface{ observation() }

// The observations.
type (
	// HoldStarted says that an event waits.
	HoldStarted struct {
		ID       graspsync.EventID
		Event    graspsync.Event
		ByUser   bool
		Deadline time.Time
	}
	// HoldEnded says that an event waits no longer.
	HoldEnded struct {
		ID     graspsync.EventID
		Event  graspsync.Event
		Reason EndReason
		Waited time.Duration
	}
	// RevivalEnded says that an announcement whose waiting has ended, since it had expired, can't be
	// revived any more either: those whom it lists are not listed by it from now on.
	RevivalEnded struct {
		ID    graspsync.EventID
		Event graspsync.Event
	}
	// FetchEnded says that a server was asked for git data.
	FetchEnded struct {
		Repo    graspsync.RepoRef
		URL     graspsync.CloneURL
		Wanted  int   // objects
		Missing int   // of them, afterwards
		Bytes   int64 // that came
		Err     error // nil if the server answered as it should
		Local   error // what failed here, git or the disk: what came is not part of the repository
	}
	// AttemptEnded says that an attempt has asked every server that can be asked now.
	AttemptEnded struct {
		Repo    graspsync.RepoRef
		Attempt int // in a row, from 1
		Next    time.Time
	}
)

func (HoldStarted) observation() {}

func (HoldEnded) observation() {}

func (RevivalEnded) observation() {}

func (FetchEnded) observation() {}

func (AttemptEnded) observation() {}

// EndReason is how the waiting of an event ended.
type EndReason uint8

// The reasons for which a hold ends.
const (
	// Released: its data is here, and it is served.
	Released EndReason = iota + 1
	// Expired: its time was over.
	Expired
	// Replaced: a newer version waits in its place.
	Replaced
	// Deleted: its author deleted it.
	Deleted
	// NotStored: its data is here, but the relay refused it, or had a newer version of it
	// or its deletion by then. It is called refused.
	NotStored
	// Displaced: it gave way to another event when there were no places left, or an operator wants
	// it no more ([Purgatory.Dismiss]). It may come again.
	Displaced
	// Unwanted: it was the announcement of somebody whom an announcement that waited has
	// listed, and none does any more. It may come again.
	Unwanted
)

// String returns the name of the reason in lower case.
func (f EndReason) String() string {
	switch f {
	case Released:
		return "released"
	case Expired:
		return "expired"
	case Replaced:
		return "replaced"
	case Deleted:
		return "deleted"
	case NotStored:
		return "refused"
	case Displaced:
		return "displaced"
	case Unwanted:
		return "unwanted"
	}
	return fmt.Sprintf("reason(%d)", uint8(f))
}
