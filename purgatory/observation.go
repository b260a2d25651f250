package purgatory

import (
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
)

// Observation is [HoldStarted], [HoldEnded], [RevivalEnded], [FetchEnded] or [AttemptEnded].
type Observation interface{ observation() }

// The observations.
type (
	// HoldStarted reports that an event is held.
	HoldStarted struct {
		ID       graspsync.EventID
		Event    graspsync.Event
		ByUser   bool
		Deadline time.Time
	}
	// HoldEnded reports that an event is not held any more.
	HoldEnded struct {
		ID     graspsync.EventID
		Event  graspsync.Event
		Reason EndReason
		Waited time.Duration
	}
	// RevivalEnded reports that an expired announcement can not be revived any more. It lists
	// nobody from now on.
	RevivalEnded struct {
		ID    graspsync.EventID
		Event graspsync.Event
	}
	// FetchEnded reports the end of a request to a git server.
	FetchEnded struct {
		Repo    graspsync.RepoRef
		URL     graspsync.CloneURL
		Wanted  int   // requested objects
		Missing int   // of Wanted, afterwards
		Bytes   int64 // received
		Err     error // nil if the server answered as it should
		Local   error // a failure of our git or disk; the received data is not part of the repository
	}
	// AttemptEnded reports that an attempt has asked every server that could be asked, and that
	// data is still missing.
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

// EndReason is the reason for which a hold ended.
type EndReason uint8

// The reasons for which a hold ends.
const (
	// Released: the git data has arrived, and the event is stored.
	Released EndReason = iota + 1
	// Expired: the git data did not arrive in time.
	Expired
	// Replaced: a newer version is held instead.
	Replaced
	// Deleted: the author deleted the event.
	Deleted
	// NotStored: the git data has arrived, but the relay refused the event or had a newer version
	// or a deletion of it. Its text is "refused".
	NotStored
	// Displaced: the event was evicted because the table was full, or [Purgatory.Drop] removed
	// it. It may be submitted again.
	Displaced
	// Unwanted: the event was the announcement of a maintainer whom no held announcement lists any
	// more. It may be submitted again.
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
