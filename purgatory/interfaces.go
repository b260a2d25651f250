package purgatory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Relay is the relay that stores released events. All methods may be called concurrently.
type Relay interface {
	// Save stores a released event and sends it to subscribers. It returns when the event is
	// durable. Saving an event twice is no error. If the error wraps ErrRefused, the hold of the
	// event ends and its refs are removed. After other errors Save is called again later.
	Save(ctx context.Context, event graspsync.Event) error
	// Events yields the stored and served events that match a filter, in any order. An error ends
	// the sequence. It wraps ErrIncomplete if more events may match.
	Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error]
	// Deleted reports whether a stored deletion or vanish request covers the event. The result
	// false is cached until [Purgatory.NotifyStored] reports a deletion by the same author. Deleted
	// is called again before the release and every hour.
	Deleted(ctx context.Context, event graspsync.Event) (bool, error)
	// Lists reports whether an announcement lists this service. Its repository is then hosted once
	// the announcement is stored. Announcements of listed maintainers may be stored as well.
	Lists(a *nip34.Announcement) bool
}

var (
	// ErrRefused is wrapped by errors of [Relay].Save for an event that will never be stored,
	// because the relay refuses it or has a newer version or a deletion of it.
	ErrRefused = errors.New("the relay refuses the event")
	// ErrIncomplete is wrapped by errors of [Relay].Events if the relay cannot return all events.
	ErrIncomplete = errors.New("the relay can't give everything")
)

// Repositories are the bare git repositories of this service. The embedder chooses their folders
// and locks. All methods may be called concurrently. A repository without announcement leaves
// service immediately, and its folder is kept for a while. Data pushed for a pull request without
// event is staged outside of the repository and reported by [Purgatory.Staged]. [Purgatory.Pushed]
// reports all other data.
type Repositories interface {
	// Lock locks a repository against pushes and purgatory, and returns its folder. The error wraps
	// ErrNoRepository if the repository does not exist. unlock must be called once.
	Lock(ctx context.Context, ref graspsync.RepoRef) (dir string, unlock func(), err error)
	// Create creates an empty repository, durably. An existing repository stays as it is, unless it
	// is empty and has another object format. The lock is not held.
	Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error
	// Remove removes a repository without refs. The error wraps ErrInUse if the repository is in
	// use or has refs. A missing repository is no error.
	Remove(ctx context.Context, ref graspsync.RepoRef) error

	// Owned yields the repositories in service of an owner, or of all owners for the zero key, in
	// any order. An error ends the sequence.
	Owned(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error]
	// Retire takes a repository out of service, durably. New requests do not find it. Retire waits
	// for the lock, but not for readers. Create restores the repository. A missing repository is no
	// error.
	Retire(ctx context.Context, ref graspsync.RepoRef) error
	// DeleteRetired deletes the folders of repositories that were retired before a time.
	DeleteRetired(ctx context.Context, before time.Time) error
	// Delete deletes a repository immediately, in service or not. It waits for the lock. A missing
	// repository is no error.
	Delete(ctx context.Context, ref graspsync.RepoRef) error

	// Staged returns the uploads that clients pushed to a repository for an event. It may be called
	// with or without locks.
	Staged(ref graspsync.RepoRef, id graspsync.EventID) []Upload
	// Unstage deletes these uploads after their objects were imported.
	Unstage(ref graspsync.RepoRef, id graspsync.EventID)

	// Reserve counts bytes that are about to be added to a repository until done is called. done is
	// called when the bytes are in the repository or will not come. pulls is true if they are for
	// pull requests only. Zero bytes ask whether there is any room. pullBytes returns the bytes of
	// strangers' pull requests in the repositories of an owner, which do not count for the owner.
	// It is fast, and must not be called after Reserve has returned. The error wraps ErrFull if
	// there is no room. Reserve may be called with or without the lock, and returns soon after ctx
	// ends.
	Reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64, pullBytes func(owner graspsync.PubKey) int64) (done func(), err error)
}

// Upload is the data of one push for an event.
type Upload struct {
	Tip nip34.ObjectID // the commit of the event, according to the push
	Dir string         // the folder of the objects; it may be deleted at any time
	// Bytes is the maximum size of the objects on the disk.
	Bytes int64
}

var (
	// ErrFull is wrapped by errors of [Repositories] if the limit of repositories is reached.
	ErrFull = errors.New("no room for more data")
	// ErrNoRepository is wrapped by errors of [Repositories] for a missing repository.
	ErrNoRepository = errors.New("no such repository")
	// ErrInUse is wrapped by errors of [Repositories] for a repository that cannot be removed,
	// because it has refs or is being read or written.
	ErrInUse = errors.New("repository is in use")
)

// GitFetcher fetches git objects and moves refs. Package gitfetch implements it for real
// repositories, package fetchtest for tests. Methods with a folder are called under the lock of its
// repository, except Quarantine and DiskUsage. Objects that Missing, CopyObjects, ImportPacks or
// [Quarantine.Promote] found in a repository or added to it are protected from garbage collection
// until Cleanup.
type GitFetcher interface {
	// Stat returns the kinds of the ids that exist in the repository, complete or not. stamp
	// changes whenever an object is added, removed, or released to garbage collection. Stat is
	// cheap. Histories are walked only if Stat finds all objects of a state.
	Stat(ctx context.Context, dir string, ids []nip34.ObjectID) (kinds map[nip34.ObjectID]ObjectKind, stamp string, err error)
	// Missing returns the ids that are absent from the repository or lack an object that they need.
	Missing(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error)
	// DiskUsage returns the bytes on the disk of ids and of all objects that they need, without the
	// objects that but needs. All ids are in the repository. The lock is not held.
	DiskUsage(ctx context.Context, dir string, ids, but []nip34.ObjectID) (int64, error)

	// Quarantine creates a place beside a repository for objects that are not part of it yet.
	Quarantine(ctx context.Context, dir string) (Quarantine, error)
	// CopyObjects copies the ids that are complete in repository from to repository to, with all
	// objects that they need, durably. Both repositories are locked.
	CopyObjects(ctx context.Context, from, to string, ids []nip34.ObjectID) error
	// ImportPacks copies objects from a folder of packs to a repository, with only the objects that
	// they need, durably. The error wraps ErrNotServed if a needed object is in neither. Then
	// nothing has changed. The folder is not changed.
	ImportPacks(ctx context.Context, dir, from string, ids []nip34.ObjectID) error

	// Refs returns the branches, tags and refs/nostr of a repository, and the target of HEAD.
	Refs(ctx context.Context, dir string) (Refs, error)
	// UpdateRefs first creates and moves refs, all or none. Then it sets HEAD, unless head is zero.
	// Then it deletes refs. The changes are durable when it returns. The error wraps ErrChanged if
	// a ref did not have its old value, and ErrInvalidRefs if git can never accept the refs.
	UpdateRefs(ctx context.Context, dir string, changes []RefChange, head nip34.RefName) error

	// Repair removes the leftovers of a crash: stale locks and quarantines of earlier processes. It
	// is the first call after a crash during UpdateRefs, and after UpdateRefs has failed.
	Repair(ctx context.Context, dir string) error
	// Cleanup does the same, and releases objects without ref to garbage collection. It is called
	// when a repository lacks nothing any more.
	Cleanup(ctx context.Context, dir string) error
	// Maintain repacks a repository and packs its refs if that is worth the cost, and deletes
	// unnamed objects. It does not disturb readers, and holds the lock only briefly. The repository
	// is intact whenever Maintain ends. A pack from CopyObjects may stay while the other repository
	// has it. The error wraps ErrInUse if the repository is already being maintained, or if an
	// object to delete was needed in the meantime.
	Maintain(ctx context.Context, how Maintenance) (Maintained, error)
}

// ObjectKind is the type of a git object.
type ObjectKind uint8

// The types of git objects.
const (
	Commit ObjectKind = iota + 1
	Tree
	Blob
	Tag
)

// Maintenance are the parameters of [GitFetcher].Maintain.
type Maintenance struct {
	// Lock is [Repositories].Lock for the repository. It is called several times.
	Lock func(ctx context.Context) (dir string, unlock func(), err error)
	// Keep returns objects that must stay, with all objects that they need, although no ref names
	// them: objects that maintainers' events name. It is called with and without the lock.
	Keep func(ctx context.Context) ([]nip34.ObjectID, error)
	// Choose returns more such objects: those of held events of strangers for which there is room.
	// It may be slow. It is called at most once, without the lock, before the search for unnamed
	// objects. It may be nil.
	Choose func(ctx context.Context, dir string) ([]nip34.ObjectID, error)
	// Grace is the time for which unnamed objects stay. Remember is the time for which an object
	// counts as named after a ref pointed to it.
	Grace, Remember time.Duration
	// Now ignores cost and grace. Afterwards only objects remain that a ref, Keep or Choose names.
	Now bool
	// Prune searches unnamed objects even if the last search was recent. It also deletes unnamed
	// objects that were fetched at least an hour ago.
	Prune bool
}

// Maintained is the result of [GitFetcher].Maintain.
type Maintained struct {
	Packs     int           // packs in the repository afterwards
	LooseRefs int           // refs in files of their own afterwards, counted up to a limit
	Removed   int           // deleted packs
	Freed     int64         // bytes; negative if the repository has grown
	Pruned    bool          // unnamed objects were searched
	Unnamed   int64         // maximum bytes of unnamed objects in their grace, if Pruned
	Locked    time.Duration // longest time for which the lock was held
}

// Quarantine holds objects that are not part of their repository yet. Only Received may be called
// concurrently.
type Quarantine interface {
	// Fetch requests objects and the objects that they need from a clone URL, and returns the
	// number of received bytes. Objects that the server lacks are left out. If the server has none,
	// the error wraps ErrNotServed. After an error the quarantine is unchanged.
	Fetch(ctx context.Context, from graspsync.CloneURL, ids []nip34.ObjectID) (bytes int64, err error)
	// Received returns the number of bytes that the current or last Fetch has received. It does not
	// fall before the next Fetch. If other requests wait, the slowest long request is ended by this
	// number. Received may be called by any goroutine at any time, even after Promote and Discard.
	// It must not block. An implementation that does not count may return 0. Its requests then
	// count as the slowest, and may be ended after a minute.
	Received() int64
	// Missing is [GitFetcher].Missing for quarantine and repository together.
	Missing(ctx context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error)
	// Promote makes the objects part of the repository, durably, and protects them from garbage
	// collection until Cleanup. The lock of the repository is held. Promote ends the quarantine.
	Promote(ctx context.Context) error
	// Discard ends the quarantine and deletes its objects. It may be called after Promote, and more
	// than once.
	Discard() error
}

var (
	// ErrNotServed is wrapped by errors of [Quarantine.Fetch] if a server has none of the objects,
	// lacks the repository, or refuses access.
	ErrNotServed = errors.New("server does not have the objects")
	// ErrServerUnusable is wrapped by errors of [Quarantine.Fetch] for a lasting failure of the
	// whole server: an unknown name, a TLS error, or an address that is not public. Its URLs are
	// not requested for a while.
	ErrServerUnusable = errors.New("server is unusable")
	// ErrLimit is wrapped by errors of [Quarantine.Fetch] if a reply exceeds a limit. The same
	// objects are not requested from the server for a day.
	ErrLimit = errors.New("limit exceeded")
	// ErrSlow is wrapped in addition to ErrLimit if the time limit was exceeded. The server is
	// asked again after minutes, because our own connection may be the cause.
	ErrSlow = errors.New("time limit exceeded")
	// ErrBusy is wrapped by errors of [Quarantine.Fetch], in a [BusyError], if a server asks for a
	// pause.
	ErrBusy = errors.New("server is busy")
	// ErrInvalidRefs is wrapped by errors of [GitFetcher].UpdateRefs if git refuses the refs,
	// because names exclude each other or a branch does not name a commit.
	ErrInvalidRefs = errors.New("git refuses these refs")
	// ErrChanged is wrapped by errors of [GitFetcher].UpdateRefs if another process has moved a
	// ref. Nothing was changed.
	ErrChanged = errors.New("ref was changed by somebody else")
	// ErrGitBusy is wrapped by errors of all methods of [GitFetcher] and [Quarantine] if all git
	// slots were busy for too long. The repository is not the cause.
	ErrGitBusy = errors.New("all git slots are busy")
)

// BusyError is wrapped by errors of [Quarantine.Fetch] if a server asks for a pause. Its URLs are
// not requested for this time, but for at least a minute and at most a day.
type BusyError struct{ After time.Duration }

// Error returns a message with the pause.
func (e *BusyError) Error() string { return fmt.Sprintf("%v: again after %v", ErrBusy, e.After) }

// Unwrap returns ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// Refs are the refs of a repository.
type Refs struct {
	At   map[nip34.RefName]nip34.ObjectID
	Head nip34.RefName // target of HEAD; zero if it is not a branch
	// Format is the object format of the repository.
	Format nip34.ObjectFormat
}

// RefChange is a change of a ref. Old is zero for a new ref, New for a deleted one.
type RefChange struct {
	Name nip34.RefName
	Old  nip34.ObjectID
	New  nip34.ObjectID
}
