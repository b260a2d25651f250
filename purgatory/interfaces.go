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

// Relay is the relay whose events wait. All methods may be called concurrently.
type Relay interface {
	// Save stores an event that is released, and sends it to subscribers. It returns
	// when the event is durable. What is stored already is no error. An error that wraps
	// ErrRefused means that it never will be: it waits no longer, and no ref stays that it
	// has brought. Any other means that it will be tried again.
	Save(ctx context.Context, event graspsync.Event) error
	// Events yields the events that are stored, and served, and match a filter, in any
	// order; an error is the last pair. It wraps ErrIncomplete if there may be more that the
	// relay can't give.
	Events(ctx context.Context, filter nostr.Filter) iter.Seq2[graspsync.Event, error]
	// Deleted reports whether a stored deletion or vanish request covers the event. That none
	// does is taken to be so until [Purgatory.Arrived] tells of one of its author, and asked again
	// before the event is released, and each hour.
	Deleted(ctx context.Context, event graspsync.Event) (bool, error)
	// Lists reports whether an announcement makes its repository ours, once it is stored.
	// Others are stored of those whom somebody lists: they say who agrees to maintain what.
	Lists(a *nip34.Announcement) bool
}

var (
	// ErrRefused is wrapped by what [Relay].Save returns for an event that is not stored and
	// never will be: the relay refuses it, or it was superseded or deleted meanwhile.
	ErrRefused = errors.New("the relay refuses the event")
	// ErrIncomplete is wrapped by [Relay].Events when a relay can't give all that it has.
	ErrIncomplete = errors.New("the relay can't give everything")
)

// Repositories are our bare git repositories: where they are is for the embedder to
// say, who owns the lock as well. All methods may be called concurrently. One that is not
// announced any more is out of service at once, and its folder is kept for a while, should
// that be taken back. What was pushed for pull requests whose events are not here lies
// outside of the repositories until these come, and is taken from there;
// [Purgatory.Pushed] is not told of it, but [Purgatory.Staged].
type Repositories interface {
	// Lock locks a repository against pushes, and against us, and returns its folder.
	// The error wraps ErrNoRepository if there is none. unlock must be called once.
	Lock(ctx context.Context, ref graspsync.RepoRef) (dir string, unlock func(), err error)
	// Create makes an empty repository, durably. One that is there already is left as
	// it is, unless it is empty and hashes its objects otherwise: then it is made anew.
	// It is called without the lock.
	Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error
	// Remove removes a repository without refs, unless it is in use: then the error
	// wraps ErrInUse. One that is not there is no error.
	Remove(ctx context.Context, ref graspsync.RepoRef) error

	// Owned yields the repositories of an owner that are in service, of all owners for the
	// zero key, in any order; an error is the last pair.
	Owned(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error]
	// Depart takes a repository out of service, durably: for all who come from now on, it is
	// not there. It waits for whoever has the lock, and for nobody who reads. Create puts
	// it back as it was. One that is not there is no error.
	Depart(ctx context.Context, ref graspsync.RepoRef) error
	// Sweep removes what has departed before a time.
	Sweep(ctx context.Context, before time.Time) error
	// Erase removes a repository at once and for good, in service or not. It waits for
	// whoever has the lock. One that is not there is no error.
	Erase(ctx context.Context, ref graspsync.RepoRef) error

	// Staged returns what was pushed to a repository for an event: by several, it may be.
	// It may be called with or without locks.
	Staged(ref graspsync.RepoRef, id graspsync.EventID) []Upload
	// Unstage removes all of that: its event has come, and what it names was taken.
	Unstage(ref graspsync.RepoRef, id graspsync.EventID)

	// Reserve makes so many bytes count that are about to come to a repository, for nothing
	// but pull requests it may be, until done is called, once they are there or are not to
	// come. None ask whether there is room for anything. pullBytes returns how many bytes pull
	// requests of strangers take up in an owner's repositories: they do not count for the owner.
	// It is quick, and not called after Reserve has returned. The error wraps ErrFull if there is no room. It may be called with or
	// without the lock, and returns soon once ctx has ended.
	Reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64, pullBytes func(owner graspsync.PubKey) int64) (done func(), err error)
}

// Upload is what one push has brought for an event.
type Upload struct {
	Tip nip34.ObjectID // what it says that the event's commit is
	Dir string         // the folder of its objects; it may go at any time
	// Bytes is what it takes up, at most.
	Bytes int64
}

var (
	// ErrFull is wrapped by [Repositories] when repositories take up all that they may.
	ErrFull = errors.New("no room for more data")
	// ErrNoRepository is wrapped by [Repositories] for a repository that is not there.
	ErrNoRepository = errors.New("no such repository")
	// ErrInUse is wrapped by [Repositories] for a repository that can't be removed: it
	// has refs, or somebody is reading or writing it.
	ErrInUse = errors.New("repository is in use")
)

// GitFetcher gets git objects and moves refs. Package gitfetch is the one for real
// repositories, package fetchtest the one for tests. Methods that take a folder are
// called under the lock of its repository, Quarantine and Weigh excepted. What Missing,
// Share, Take and [Quarantine.Promote] have made part of a repository, or found there, is
// kept from garbage collection until Cleanup.
type GitFetcher interface {
	// Probe returns the kinds of those of ids that are in the repository, whatever they
	// need, and a stamp that is another one whenever an object has come to the
	// repository, has left it, or is not kept from garbage collection any more. It is
	// cheap: histories are walked only where it has found all that a state names.
	Probe(ctx context.Context, dir string, ids []nip34.ObjectID) (kinds map[nip34.ObjectID]ObjectKind, stamp string, err error)
	// Missing returns those of ids that are not in the repository with all that they
	// need.
	Missing(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error)
	// Weigh returns how many bytes on the disk some objects take up with all that they need,
	// but for what others need as well. All are in the repository, whose lock is not needed.
	Weigh(ctx context.Context, dir string, ids, but []nip34.ObjectID) (int64, error)

	// Quarantine makes a place beside a repository for objects that are not part of
	// it yet.
	Quarantine(ctx context.Context, dir string) (Quarantine, error)
	// Share makes those of ids that are complete in one repository part of another one,
	// with all that they need, durably. Both repositories are locked.
	Share(ctx context.Context, from, to string, ids []nip34.ObjectID) error
	// Take makes objects that lie in a folder of packs part of a repository, with all
	// that they need and nothing else, durably. The error wraps ErrNotServed if something
	// of that is in neither; nothing has changed then. The folder stays as it is.
	Take(ctx context.Context, dir, from string, ids []nip34.ObjectID) error

	// Refs returns the branches, tags and refs/nostr of a repository, and where HEAD
	// points to.
	Refs(ctx context.Context, dir string) (Refs, error)
	// UpdateRefs makes refs what they should be: all that are created or moved, or none;
	// then HEAD, unless it is zero; then those that go. It is durable on return. The
	// error wraps ErrChanged if a ref did not have its old value, and ErrUnfit if git can
	// never make refs what they should be.
	UpdateRefs(ctx context.Context, dir string, changes []RefChange, head nip34.RefName) error

	// Repair removes what a crash left: stale locks, and quarantines of earlier processes.
	// It is called first of all after a crash that happened while refs were moved, and
	// after UpdateRefs has failed.
	Repair(ctx context.Context, dir string) error
	// Cleanup does the same, and lets go of objects which no ref holds. It is called when
	// nothing of a repository is missing any more.
	Cleanup(ctx context.Context, dir string) error
	// Maintain puts one repository in order, as far as that is worth its cost: packs and
	// refs become few, and what nothing names any more goes. Readers are not disturbed,
	// and the lock is held for moments only. Whatever ends it leaves a sound repository.
	// A pack that Share has given the repository may stay as it is as long as the other one
	// has it. The error wraps ErrInUse if the same repository is being maintained already, or
	// if what was to go was needed meanwhile.
	Maintain(ctx context.Context, how Maintenance) (Maintained, error)
}

// ObjectKind is what a git object is.
type ObjectKind uint8

// The kinds.
const (
	Commit ObjectKind = iota + 1
	Tree
	Blob
	Tag
)

// Maintenance says how a repository is put in order.
type Maintenance struct {
	// Lock is Lock of [Repositories] for the repository. It is called several times.
	Lock func(ctx context.Context) (dir string, unlock func(), err error)
	// Keep returns objects that must not go, nor what they need, though no ref has them:
	// what those name who have a say. It is called under the lock, and without it.
	Keep func(ctx context.Context) ([]nip34.ObjectID, error)
	// Choose returns more of them, and takes its time: what strangers' events name that
	// wait, as far as there is room for it. It is called without the lock, and at most once:
	// before it is looked for what nothing names. It may be nil.
	Choose func(ctx context.Context, dir string) ([]nip34.ObjectID, error)
	// Grace is how long objects stay that nothing names any more, Remember how long it
	// counts as naming an object that a ref pointed to it.
	Grace, Remember time.Duration
	// Now has all of it done, whether or not it is worth its cost, and without grace:
	// what no ref names, nor Keep or Choose, is gone at the end.
	Now bool
	// Prune has it looked for what nothing names though that was done lately. What was
	// fetched an hour ago or earlier, and that nothing names by now, goes as well.
	Prune bool
}

// Maintained is what maintenance has done.
type Maintained struct {
	Packs     int           // in the repository, afterwards
	LooseRefs int           // refs with a file of their own, afterwards; counted up to a bound
	Removed   int           // packs that went
	Freed     int64         // bytes; negative if what is there has grown
	Pruned    bool          // it was looked for what nothing names any more
	Unnamed   int64         // bytes at most of what that has found and left, for its grace; if Pruned
	Locked    time.Duration // the longest time for which the lock was held
}

// Quarantine has objects that are not part of their repository. It is used by one
// goroutine at a time, but for Received.
type Quarantine interface {
	// Fetch asks a clone URL for objects and what they need, and returns how many
	// bytes came. What the server does not have is left out; an error that wraps
	// ErrNotServed means that it has none of them, whatever else it sent. After an
	// error the quarantine has what it had before.
	Fetch(ctx context.Context, from graspsync.CloneURL, ids []nip34.ObjectID) (bytes int64, err error)
	// Received returns how many bytes of the Fetch under way have come, or of the last one, and 0
	// before the first: of requests that take long while others wait, the one that brings least in
	// a second gives way. It does not fall before the next Fetch begins. It may be called by any goroutine at
	// any time, so while the other methods run, and after Promote and Discard, when nothing hangs on what it
	// says; it must not block. Where nobody knows, 0 is allowed, at a price: such a request counts as the slowest
	// of all, and is the first to be ended, a minute after it began, where others wait.
	Received() int64
	// Missing is that of GitFetcher, for quarantine and repository together.
	Missing(ctx context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error)
	// Promote makes the objects part of the repository, durably, and kept from garbage
	// collection until Cleanup. It is called under the repository's lock, and ends the
	// quarantine.
	Promote(ctx context.Context) error
	// Discard ends the quarantine, and all that is in it. It may be called after
	// Promote, and again.
	Discard() error
}

var (
	// ErrNotServed is wrapped by [Quarantine.Fetch] when a server has nothing of what
	// it was asked for: no such object, no such repository, or not for us.
	ErrNotServed = errors.New("server does not have the objects")
	// ErrBroken is wrapped by [Quarantine.Fetch] when a server failed in a way that does not pass
	// soon and is not about one repository: no such name, TLS, an address that is
	// not public. None of its URLs is asked for a while.
	ErrBroken = errors.New("server is of no use")
	// ErrLimit is wrapped by [Quarantine.Fetch] when a server went beyond a limit of ours: it is not
	// asked for the same again before the next day.
	ErrLimit = errors.New("beyond a limit")
	// ErrSlow is wrapped by [Quarantine.Fetch] besides ErrLimit where it was time that was up: that may
	// be our line's doing, or a server's for a moment, and it is asked again in minutes.
	ErrSlow = errors.New("it took too long")
	// ErrBusy is wrapped by [Quarantine.Fetch], in a [BusyError], when a server asks to be left alone.
	ErrBusy = errors.New("server is busy")
	// ErrUnfit is wrapped by [GitFetcher.UpdateRefs] when git refuses refs for what they are:
	// names that exclude each other, a branch that is no commit.
	ErrUnfit = errors.New("git refuses these refs")
	// ErrChanged is wrapped by [GitFetcher.UpdateRefs] when a ref was moved by somebody
	// else. Nothing was changed.
	ErrChanged = errors.New("ref was changed by somebody else")
	// ErrCrowded is wrapped by all methods of [GitFetcher] and [Quarantine] when time was up while others had all places
	// in which git may run: it says nothing about the repository.
	ErrCrowded = errors.New("others had all places")
)

// BusyError is wrapped by [Quarantine.Fetch] when a server asks to be left alone for some
// time. None of its URLs is asked meanwhile: for a minute at least, and for a day at most.
type BusyError struct{ After time.Duration }

// Error says for how long.
func (e *BusyError) Error() string { return fmt.Sprintf("%v: again after %v", ErrBusy, e.After) }

// Unwrap returns ErrBusy.
func (e *BusyError) Unwrap() error { return ErrBusy }

// Refs are the refs of a repository.
type Refs struct {
	At   map[nip34.RefName]nip34.ObjectID
	Head nip34.RefName // the branch that HEAD points to; zero if to nothing we know
	// Format is how the repository hashes its objects.
	Format nip34.ObjectFormat
}

// RefChange is what becomes of one ref. A zero Old means that it does not exist, a
// zero New that it goes.
type RefChange struct {
	Name nip34.RefName
	Old  nip34.ObjectID
	New  nip34.ObjectID
}
