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

// Operations reads and changes the repository in a folder, under its lock, except Quarantine and
// DiskUsage. Objects that a method found or added are protected from garbage collection until
// Cleanup.
type Operations interface {
	// Stat returns the kinds of the ids that exist, complete or not. It is cheap.
	Stat(ctx context.Context, dir string, ids []nip34.ObjectID) (map[nip34.ObjectID]refplan.Kind, error)
	// Missing returns the ids that are absent or lack an object that they need.
	Missing(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error)
	// DiskUsage returns the bytes of ids and of all objects that they need, without those that but
	// needs. All ids exist.
	DiskUsage(ctx context.Context, dir string, ids, but []nip34.ObjectID) (int64, error)

	// Quarantine creates a [Quarantine] beside a repository.
	Quarantine(ctx context.Context, dir string) (Quarantine, error)
	// CopyObjects copies ids with all objects that they need, durably. Both repositories are
	// locked.
	CopyObjects(ctx context.Context, from, to string, ids []nip34.ObjectID) error
	// ImportPacks copies ids with the objects that they need from a folder of packs, durably. The
	// error wraps purgatory.ErrNotServed if an object is in neither. Then nothing has changed.
	ImportPacks(ctx context.Context, dir, from string, ids []nip34.ObjectID) error

	// Refs returns the branches, tags and refs/nostr, and the target of HEAD.
	Refs(ctx context.Context, dir string) (refplan.Refs, error)
	// UpdateRefs first creates and moves refs, all or none, then sets HEAD, unless head is zero,
	// then deletes refs, durably. The error wraps ErrChanged if a ref did not have its old value,
	// and ErrInvalidRefs if git can never accept the refs.
	UpdateRefs(ctx context.Context, dir string, changes []refplan.RefChange, head nip34.RefName) error

	// Repair removes stale locks and quarantines after a crash or a failure of UpdateRefs.
	Repair(ctx context.Context, dir string) error
	// Cleanup does the same, and ends the protection from garbage collection.
	Cleanup(ctx context.Context, dir string) error
	// Maintain repacks a repository and its refs if that is worth the cost, and deletes unnamed
	// objects. It holds the lock only briefly. The error wraps purgatory.ErrInUse if the repository
	// has moved.
	Maintain(ctx context.Context, how Maintenance) (Maintained, error)
}

// Quarantine holds objects that are not part of their repository yet. Its methods are not called
// concurrently.
type Quarantine interface {
	// Folder returns the folder for purgatory.FetchRequest.
	Folder() string
	// Missing is [Operations].Missing for quarantine and repository together.
	Missing(ctx context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error)
	// Promote makes the objects part of the locked repository, durably, and ends the quarantine.
	Promote(ctx context.Context) error
	// Discard deletes the objects. It may be called after Promote, and more than once.
	Discard() error
}

// Maintenance are the parameters of [Operations].Maintain.
type Maintenance struct {
	// Lock is purgatory.Repositories.Lock. It is called several times.
	Lock func(ctx context.Context) (dir string, unlock func(), err error)
	// Keep returns objects that must stay with all that they need: those that maintainers' events
	// name. It is called with the lock.
	Keep func(ctx context.Context) ([]nip34.ObjectID, error)
	// Choose, if not nil, returns more such objects, of held events of strangers. It is called
	// without the lock.
	Choose func(ctx context.Context, dir string) ([]nip34.ObjectID, error)
	// Grace is the time for which unnamed objects stay. Remember is the time for which an object
	// counts as named after a ref pointed to it.
	Grace, Remember time.Duration
	// Now ignores cost and grace.
	Now bool
	// Prune searches unnamed objects even if the last search was recent. It also deletes those that
	// were fetched at least an hour ago.
	Prune bool
}

// Maintained is the result of [Operations].Maintain.
type Maintained struct {
	Packs   int   // packs in the repository afterwards
	Freed   int64 // bytes; negative if the repository has grown
	Pruned  bool  // unnamed objects were searched
	Unnamed int64 // maximum bytes of unnamed objects in their grace, if Pruned
}

var (
	// ErrInvalidRefs is wrapped if git refuses refs, because names exclude each other or a branch
	// names no commit.
	ErrInvalidRefs = errors.New("git refuses these refs")
	// ErrChanged is wrapped if another process has moved a ref. Only deletions may have been made.
	ErrChanged = errors.New("ref was changed by somebody else")
	// ErrBusy is wrapped if all git slots were busy for too long.
	ErrBusy = errors.New("all git slots are busy")
)
