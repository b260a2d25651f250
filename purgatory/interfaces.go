package purgatory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Relay stores released events. All methods may be called concurrently.
type Relay interface {
	// Save stores a released event, once or again, durably, and sends it to subscribers. If the error
	// wraps ErrRefused, the hold ends and the refs are removed. After other errors Save is called
	// again.
	Save(ctx context.Context, event graspsync.Event) error
	// Events yields the served events that match a filter, in any order. An error ends the sequence,
	// and wraps ErrIncomplete if more events may match.
	Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error]
	// Deleted reports whether a stored deletion or vanish request covers the event. It is called
	// before the release, every hour, and after [Purgatory.NotifyStored] with a deletion by the
	// author.
	Deleted(ctx context.Context, event graspsync.Event) (bool, error)
	// Lists reports whether an announcement lists this service. Its repository is then hosted once
	// the announcement is stored.
	Lists(a *nip34.Announcement) bool
}

var (
	// ErrRefused is wrapped by errors of [Relay].Save if the relay refuses the event or has a newer
	// version or a deletion of it.
	ErrRefused = errors.New("the relay refuses the event")
	// ErrIncomplete is wrapped by errors of [Relay].Events if the relay cannot return all events.
	ErrIncomplete = errors.New("the relay can't give everything")
)

// Repositories are the bare git repositories of this service. All methods may be called
// concurrently. Data pushed for an unknown pull request is staged outside of the repository and
// reported to [Purgatory.Staged], other data to [Purgatory.Pushed].
type Repositories interface {
	// Lock locks a repository against pushes and purgatory, and returns its folder. The error wraps
	// ErrNoRepository for a missing repository. unlock must be called once.
	Lock(ctx context.Context, ref graspsync.RepoRef) (dir string, unlock func(), err error)
	// Create creates an empty repository, durably. An existing one stays as it is, unless it is
	// empty and has another object format. The lock is not held.
	Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error
	// Owned yields the repositories in service of an owner, or all for the zero key. An error ends
	// the sequence.
	Owned(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error]
	// Retire takes a repository out of service, durably. It waits for the lock, but not for readers.
	// A repository with refs is kept for a time, in which Create restores it. Otherwise, and if the
	// time is zero, it is deleted, even if it was retired before. A missing repository is no error.
	Retire(ctx context.Context, ref graspsync.RepoRef, keep time.Duration) (kept bool, err error)

	// Staged returns the uploads that clients pushed to a repository for an event. The lock may be
	// held.
	Staged(ref graspsync.RepoRef, id graspsync.EventID) []Upload

	// Reserve counts bytes that are about to be added to a repository. pulls is true if they are
	// for pull requests only. Zero bytes ask whether there is any room. The error wraps ErrFull if
	// there is no room. The lock may be held.
	Reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64) error
}

// Upload is the data of one push for an event.
type Upload struct {
	Tip   nip34.ObjectID // the commit of the event, according to the push
	Dir   string         // the folder of the objects; it may be deleted at any time
	Bytes int64
	// Discard deletes the upload, unless it is for other events as well.
	Discard func()
}

var (
	// ErrFull is wrapped by errors of [Repositories] if their limit is reached.
	ErrFull = errors.New("no room for more data")
	// ErrNoRepository is wrapped by errors of [Repositories] for a missing one.
	ErrNoRepository = errors.New("no such repository")
	// ErrInUse is wrapped by errors for a repository that cannot be removed or maintained now.
	ErrInUse = errors.New("repository is in use")
)

// GitFetcher fetches git objects from git servers, in package gitfetch by smart HTTP, in package
// fetchtest without network.
type GitFetcher interface {
	// Fetch requests objects, with those that they need, from a clone URL, and adds them to a
	// quarantine, without those that the server lacks. Calls are concurrent. Purgatory repeats
	// requests.
	Fetch(ctx context.Context, request FetchRequest) error
}

// FetchRequest is a request to a git server.
type FetchRequest struct {
	From graspsync.CloneURL
	Want []nip34.ObjectID
	// Dir is the folder of the repository. It is not locked and must not be changed.
	Dir string
	// Quarantine is the folder for the objects, in the layout of the folder objects of a
	// repository. Fetch refuses objects with faults.
	Quarantine string
	// Received counts the received bytes while they arrive, because a slow request is ended if
	// others wait.
	Received *atomic.Int64
}

// Maintained is the result of [Purgatory.Maintain].
type Maintained = gitops.Maintained

var (
	// ErrNotServed is wrapped by errors of [GitFetcher].Fetch if a server has none of the objects,
	// lacks the repository, or refuses access.
	ErrNotServed = errors.New("server does not have the objects")
	// ErrServerUnusable is wrapped for a lasting failure of the whole server, such as an unknown name,
	// a TLS error, or an address that is not public. Its URLs are not requested for a while.
	ErrServerUnusable = errors.New("server is unusable")
	// ErrLimit is wrapped if a reply exceeds a limit. The same objects are not requested from the
	// server for a day.
	ErrLimit = errors.New("limit exceeded")
	// ErrSlow is wrapped in addition to ErrLimit if the time limit was exceeded. The server is
	// asked again after minutes.
	ErrSlow = errors.New("time limit exceeded")
	// ErrBusy is wrapped, in a [BusyError], if a server asks for a pause.
	ErrBusy = errors.New("server is busy")
)

// BusyError is an error of [GitFetcher].Fetch if a server asks for a pause, which is limited to
// between a minute and a day.
type BusyError struct{ After time.Duration }

func (e *BusyError) Error() string { return fmt.Sprintf("%v: again after %v", ErrBusy, e.After) }

func (e *BusyError) Unwrap() error { return ErrBusy }

// Observation is [HoldStarted], [HoldEnded] or [FetchEnded].
type Observation interface{ observation() }

type (
	// HoldStarted reports that an event is held.
	HoldStarted struct {
		ID       graspsync.EventID
		Event    graspsync.Event
		ByUser   bool
		Deadline time.Time
	}
	// HoldEnded reports that an event is no longer held. An expired announcement ends a second time
	// when it can no longer be revived.
	HoldEnded struct {
		ID     graspsync.EventID
		Event  graspsync.Event
		Reason EventCode
		Waited time.Duration
	}
	// FetchEnded reports the end of a request to a git server.
	FetchEnded struct {
		Repo    graspsync.RepoRef
		URL     graspsync.CloneURL
		Wanted  int
		Missing int
		Bytes   int64
		Err     error // nil if the server replied correctly
		Local   error // a failure of our git or disk; the received data is not part of the repository
	}
)

func (HoldStarted) observation() {}

func (HoldEnded) observation() {}

func (FetchEnded) observation() {}

// EventCode is the state of an event: a constant below.
type EventCode = refplan.EventCode

// The reasons why a hold ends.
const (
	Released = refplan.Released // the git data has arrived and the event is stored
	Expired  = refplan.Expired  // the git data did not arrive in time
	Replaced = refplan.Replaced // a newer version is held instead
	Deleted  = refplan.Deleted  // the author deleted the event
	// NotStored: the relay refused the event or had a newer version or a deletion of it.
	NotStored = refplan.NotStored
	// Displaced: the event was evicted or removed by [Purgatory.Drop]. It may be submitted again.
	Displaced = refplan.Displaced
	// Unwanted: no held announcement lists the author of this announcement any more. It may be
	// submitted again.
	Unwanted = refplan.Unwanted
)

// The codes of an [EventState], in addition to the reasons.
const (
	IsWaiting EventCode = "waits"          // for git data
	IsSoft    EventCode = "expired softly" // an announcement that a new state or a resubmission revives
	IsNotHeld EventCode = "not held"       // Submit refused it; see Reason
	IsUnknown EventCode = "unknown"
)
