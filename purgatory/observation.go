package purgatory

import (
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
)

// Observation is [HoldStarted], [HoldEnded], [RevivalEnded] or [FetchEnded].
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
	// HoldEnded reports that an event is no longer held.
	HoldEnded struct {
		ID     graspsync.EventID
		Event  graspsync.Event
		Reason EndReason
		Waited time.Duration
	}
	// RevivalEnded reports that an expired announcement can no longer be revived. Its listed
	// maintainers do not count any more.
	RevivalEnded struct {
		ID    graspsync.EventID
		Event graspsync.Event
	}
	// FetchEnded reports the end of a request to a git server.
	FetchEnded struct {
		Repo    graspsync.RepoRef
		URL     graspsync.CloneURL
		Wanted  int   // requested objects
		Missing int   // of Wanted, after the request
		Bytes   int64 // received
		Err     error // nil if the server replied correctly
		Local   error // a failure of our git or disk; the received data is not part of the repository
	}
)

func (HoldStarted) observation() {}

func (HoldEnded) observation() {}

func (RevivalEnded) observation() {}

func (FetchEnded) observation() {}

// EndReason is the reason why a hold ended.
type EndReason uint8

// The reasons why a hold ends.
const (
	// Released means that the git data has arrived and the event is stored.
	Released EndReason = iota + 1
	// Expired means that the git data did not arrive in time.
	Expired
	// Replaced means that a newer version is held instead.
	Replaced
	// Deleted means that the author deleted the event.
	Deleted
	// NotStored means that the git data has arrived, but the relay refused the event or had a newer
	// version or a deletion of it. Its text is "refused".
	NotStored
	// Displaced means that the event was evicted from a full table or removed by [Purgatory.Drop].
	// It may be submitted again.
	Displaced
	// Unwanted means that no held announcement lists the author of this announcement any more. It
	// may be submitted again.
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
