// Package gitops declares the git operations on our own repositories. Package gitfetch implements
// them with the git program, package fetchtest in memory.
package gitops

import (
	"context"
	"errors"
	"time"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Operations reads and changes the repository in a folder. Its methods are called under the lock of
// the repository, except Quarantine and DiskUsage. Objects that Missing, CopyObjects, ImportPacks or
// [Quarantine.Promote] found in a repository or added to it are protected from garbage collection
// until Cleanup.
type Operations interface {
	// Stat returns the kinds of the ids that exist in the repository, complete or not. It is cheap.
	// Histories are walked only if Stat finds all objects of a state.
	Stat(ctx context.Context, dir string, ids []nip34.ObjectID) (map[nip34.ObjectID]refplan.Kind, error)
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
	// they need, durably. The error wraps purgatory.ErrNotServed if a needed object is in neither.
	// Then nothing has changed. The folder is not changed.
	ImportPacks(ctx context.Context, dir, from string, ids []nip34.ObjectID) error

	// Refs returns the branches, tags and refs/nostr of a repository, and the target of HEAD.
	Refs(ctx context.Context, dir string) (refplan.Refs, error)
	// UpdateRefs first creates and moves refs, all or none. Then it sets HEAD, unless head is zero.
	// Then it deletes refs. The changes are durable when it returns. The error wraps ErrChanged if
	// a ref did not have its old value, and ErrInvalidRefs if git can never accept the refs.
	UpdateRefs(ctx context.Context, dir string, changes []refplan.RefChange, head nip34.RefName) error

	// Repair removes the leftovers of a crash: stale locks and quarantines of earlier processes. It
	// is the first call after a crash during UpdateRefs, and after UpdateRefs has failed.
	Repair(ctx context.Context, dir string) error
	// Cleanup does the same, and releases objects without ref to garbage collection. It is called
	// when a repository lacks nothing any more.
	Cleanup(ctx context.Context, dir string) error
	// Maintain repacks a repository and packs its refs if that is worth the cost, and deletes
	// unnamed objects. It does not disturb readers, and holds the lock only briefly. The repository
	// is intact whenever Maintain ends. A pack from CopyObjects may stay while the other repository
	// has it. The error wraps purgatory.ErrInUse if the repository is already being maintained, or
	// if an object to delete was needed in the meantime.
	Maintain(ctx context.Context, how Maintenance) (Maintained, error)
}

// Quarantine holds objects that are not part of their repository yet. Its methods are not called
// concurrently.
type Quarantine interface {
	// Folder returns the folder for purgatory.FetchRequest.
	Folder() string
	// Missing is [Operations].Missing for quarantine and repository together.
	Missing(ctx context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error)
	// Promote makes the objects part of the repository, durably, and protects them from garbage
	// collection until Cleanup. The lock of the repository is held. Promote ends the quarantine.
	Promote(ctx context.Context) error
	// Discard ends the quarantine and deletes its objects. It may be called after Promote, and more
	// than once.
	Discard() error
}

// Maintenance are the parameters of [Operations].Maintain.
type Maintenance struct {
	// Lock is purgatory.Repositories.Lock for the repository. It is called several times.
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

// Maintained is the result of [Operations].Maintain.
type Maintained struct {
	Packs   int           // packs in the repository afterwards
	Removed int           // deleted packs
	Freed   int64         // bytes; negative if the repository has grown
	Pruned  bool          // unnamed objects were searched
	Unnamed int64         // maximum bytes of unnamed objects in their grace, if Pruned
	Locked  time.Duration // longest time for which the lock was held
}

var (
	// ErrInvalidRefs is wrapped by errors of [Operations].UpdateRefs if git refuses the refs,
	// because names exclude each other or a branch does not name a commit.
	ErrInvalidRefs = errors.New("git refuses these refs")
	// ErrChanged is wrapped by errors of [Operations].UpdateRefs if another process has moved a
	// ref. Nothing was changed.
	ErrChanged = errors.New("ref was changed by somebody else")
	// ErrBusy is wrapped by errors of all operations if all git slots were busy for too long. The
	// repository is not the cause.
	ErrBusy = errors.New("all git slots are busy")
)
