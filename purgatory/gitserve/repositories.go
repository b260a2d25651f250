package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
)

// Repositories are the bare repositories below one folder. They are made by [Open].
// All methods may be called concurrently; one process at a time may use a folder.
type Repositories struct {
	*layout
	lock   *os.File // of the folder, which git has open as well
	git    *program
	faults fsck.Rules
	tasks  *tasks // beside what is asked
	quota  *diskQuota
	// staging has what was pushed for events that are not here.
	staging *Staging
	// inUse are those that somebody has open, or has the lock of; of each, one push at a time
	// waits for the lock, in its place of queues.
	inUse  *keyed.Locks[graspsync.RepoRef]
	queues *keyed.Shared[graspsync.RepoRef, *limit.Slots]

	mu sync.Mutex
	// guarded by mu
	unsure map[graspsync.RepoRef]struct{} // a push to it may not be on the disk
}

var (
	_ purgatory.Repositories = (*Repositories)(nil)
)

// departed has what is out of service, as it was, each with a file that says since when.
const (
	departed = "departed"
	since    = "departed"
)

// Open opens a folder of repositories and makes it if need be. What a crash has left
// half made is removed, and what was staged and has no time or no room any more. It waits for a
// moment while somebody else has the folder open, also for git that works for one who was killed;
// then the error wraps [ErrLocked]. For a configuration that can't be used it wraps [ErrConfig],
// and names every field.
func Open(dir string, cfg RepositoriesConfig) (*Repositories, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	git, err := exec.LookPath(cfg.Git)
	if err != nil {
		errs = append(errs, fmt.Errorf("Git: %w", err))
	}
	if _, err := exec.LookPath(shell); err != nil {
		errs = append(errs, fmt.Errorf("limiting memory: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	cfg.Git = git
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("opening repositories: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening repositories: %w", err)
	}
	lock, err := lockFolder(dir, lockMost)
	if err != nil {
		return nil, fmt.Errorf("opening repositories: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening repositories: %w", err), lock.Close())
	}
	return openAt(dir, root, lock, cfg)
}

// openAt opens a folder that is locked, and lets go of it if that fails.
func openAt(dir string, root folder, lock *os.File, cfg RepositoriesConfig) (_ *Repositories, err error) {
	in := newLayout(dir, root)
	in.plain = cfg.PlainNames
	r := &Repositories{
		layout: in, lock: lock, unsure: make(map[graspsync.RepoRef]struct{}),
		git:    &program{path: cfg.Git, settings: settings(), memory: NewMemory(cfg), lock: lock},
		tasks:  newTasks(),
		inUse:  keyed.NewLocks[graspsync.RepoRef](),
		queues: keyed.NewShared[graspsync.RepoRef](func() *limit.Slots { return limit.NewSlots(1, 1) }),
	}
	if r.faults, err = fsck.New(cfg.AllowFaults); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: AllowFaults: %w", ErrConfig, err), r.Close())
	}
	r.quota = &diskQuota{
		layout: r.layout, owner: cfg.MaxOwnerBytes, all: cfg.MaxBytes, weigh: r.git.weighPulls, tasks: r.tasks, log: cfg.Logger,
		measuring: keyed.NewLocks[string](), usages: make(map[string]*usage),
	}
	if err = r.sweepLocked(); err == nil { // else the marks stay for the next time
		err = errors.Join(root.RemoveAll(incoming), root.Mkdir(incoming, 0o700))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("clearing repositories: %w", err), r.Close())
	}
	if err := root.Mkdir(departed, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, errors.Join(fmt.Errorf("opening repositories: %w", err), r.Close())
	}
	if r.staging, err = openStaging(r.layout, cfg.staged(), cfg.Logger, r.tasks); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the staging area: %w", err), r.Close())
	}
	return r, nil
}

// ErrLocked is wrapped when another process has a folder of repositories open.
var ErrLocked = errors.New("another process uses the folder")

// lockMost is how long another process is waited for: git that is killed with the process
// it works for has gone long before.
const lockMost = 5 * time.Second

// lockFolder takes the lock of a folder, for which it waits for a while. It lasts until
// nobody has the file open.
func lockFolder(dir string, most time.Duration) (*os.File, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(most); ; {
		err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return folder, nil
		case !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, errors.Join(err, folder.Close())
		case time.Now().After(end):
			return nil, errors.Join(ErrLocked, folder.Close())
		}
		<-time.After(createPause)
	}
}

// Writable returns why nothing can be written to the folder now: it makes a file there, durably, and
// removes it.
func (r *Repositories) Writable() error {
	name := r.fresh()
	err := r.write(name, "")
	if removed := r.root.Remove(name); err == nil { // what could not be written may be there all the same
		err = removed
	}
	if err != nil {
		return fmt.Errorf("writing to the folder of repositories: %w", err)
	}
	return nil
}

// Close lets go of the folder. Nothing else may be called afterwards.
func (r *Repositories) Close() error {
	r.tasks.close()
	err := r.lock.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil // again
	}
	return errors.Join(r.root.Close(), err)
}

// use keeps a repository from being removed until done is called, once. One that is made anew
// right now is waited for.
func (r *Repositories) use(ctx context.Context, ref graspsync.RepoRef) (dir string, done func(), err error) {
	done = r.inUse.Use(ref)
	there, err := r.isThere(r.at(ref))
	if err == nil && !there {
		var unlock func()
		if unlock, err = r.inUse.Lock(ctx, ref); err == nil {
			_, err = r.root.Stat(path.Join(r.at(ref), "HEAD"))
			unlock()
		}
	}
	if err != nil {
		done()
		return "", nil, missing(err)
	}
	return filepath.Join(r.dir, filepath.FromSlash(r.at(ref))), done, nil
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return purgatory.ErrNoRepository
	}
	return fmt.Errorf("opening repository: %w", err)
}

// Lock implements [purgatory.Repositories]. Who only reads does not wait for it.
func (r *Repositories) Lock(ctx context.Context, ref graspsync.RepoRef) (dir string, unlock func(), err error) {
	release, err := r.inUse.Lock(ctx, ref)
	if err != nil {
		return "", nil, fmt.Errorf("locking a repository: %w", err)
	}
	if unlock, err = r.locked(ref, release); err != nil {
		return "", nil, err
	}
	return filepath.Join(r.dir, filepath.FromSlash(r.at(ref))), unlock, nil
}

// locked makes a lock that was taken one of a repository, with a mark that tells Open of it if we are killed.
func (r *Repositories) locked(ref graspsync.RepoRef, release func()) (unlock func(), err error) {
	if err := r.ready(ref); err != nil {
		release()
		return nil, err
	}
	if file, err := r.root.Create(r.mark(ref)); err == nil { // on a full disk the next maintenance does what Open does for a mark
		_ = file.Close() // it is empty
	}
	return func() {
		if !r.isUnsure(ref) {
			_ = r.root.Remove(r.mark(ref)) // one that stays costs a look
		}
		release()
	}, nil
}

func (r *Repositories) isUnsure(ref graspsync.RepoRef) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, unsure := r.unsure[ref]
	return unsure
}

// ready reports whether a repository is there, and all that was pushed to it on the disk.
// It is called with the lock of the repository.
func (r *Repositories) ready(ref graspsync.RepoRef) error {
	_, err := r.root.Stat(path.Join(r.at(ref), "HEAD"))
	unsure := r.isUnsure(ref)
	if err == nil && unsure {
		if err := r.syncPushed(r.at(ref)); err != nil {
			return fmt.Errorf("what was pushed may not be on the disk: %w", err)
		}
	}
	if unsure && (err == nil || errors.Is(err, fs.ErrNotExist)) { // it may have gone
		r.mu.Lock()
		delete(r.unsure, ref)
		r.mu.Unlock()
	}
	if err != nil {
		return missing(err)
	}
	return nil
}

// tryLock is [Repositories.Lock] for who does not wait.
func (r *Repositories) tryLock(ref graspsync.RepoRef) (unlock func(), ok bool, err error) {
	unlock, ok = r.inUse.TryLock(ref)
	if !ok {
		return nil, false, nil
	}
	unlock, err = r.locked(ref, unlock)
	return unlock, err == nil, err
}

// queue waits until no other push waits for the lock of a repository, or has it.
func (r *Repositories) queue(ctx context.Context, ref graspsync.RepoRef, who limit.Stranger) (done func(), err error) {
	unused := r.inUse.Use(ref)
	next, left := r.queues.Use(ref)
	out := func() {
		left()
		unused()
	}
	slot, err := next.Acquire(ctx, who, 1)
	if err != nil {
		out()
		return nil, fmt.Errorf("waiting for a repository: %w", err)
	}
	return func() {
		slot.Release()
		out()
	}, nil
}

// alone runs f if nobody else uses the repository; else the error wraps
// [purgatory.ErrInUse].
func (r *Repositories) alone(ref graspsync.RepoRef, f func(at string) error) error {
	unlock, ok := r.inUse.LockUnused(ref)
	if !ok {
		return fmt.Errorf("%w: somebody reads or writes it", purgatory.ErrInUse)
	}
	defer unlock()
	return f(r.at(ref))
}

// Create implements [purgatory.Repositories].
func (r *Repositories) Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := r.create(ref, format)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, purgatory.ErrInUse) || try == createTries:
			return fmt.Errorf("creating repository: %w", err)
		}
		// Somebody else creates it, or has just found that it is not there.
		select {
		case <-time.After(createPause):
		case <-ctx.Done():
			return fmt.Errorf("creating repository: %w", context.Cause(ctx))
		}
	}
}

// A repository that is in use is tried to be created a few times: who uses one that is
// not there does so for a moment.
const (
	createTries = 100
	createPause = 5 * time.Millisecond
)

func (r *Repositories) create(ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	if same, err := r.fits(r.at(ref), format); err != nil || same {
		return err
	}
	return r.alone(ref, func(at string) error {
		if same, err := r.fits(at, format); err != nil || same {
			return err // somebody was faster
		}
		back, err := r.takeBack(at)
		if err != nil {
			return err
		}
		if back {
			if same, err := r.fits(at, format); err != nil || same {
				return err
			}
		}
		return errors.Join(r.discard(at), r.make(at, ref, format))
	})
}

// takeBack puts a repository back into service that has departed, if there is one and
// nothing in its place.
func (r *Repositories) takeBack(at string) (bool, error) {
	aside := path.Join(departed, at)
	if _, err := r.root.Stat(path.Join(at, "HEAD")); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if _, err := r.root.Stat(path.Join(aside, "HEAD")); err != nil {
		return false, ifExists(err)
	}
	if err := r.place(aside, at); err != nil {
		return false, fmt.Errorf("putting a repository back: %w", err)
	}
	return true, errors.Join(r.sync(path.Dir(aside)), r.dropOwner(path.Dir(aside)), ifExists(r.root.Remove(path.Join(at, since))))
}

// ifExists returns an error that says more than that something is not there.
func ifExists(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Owned implements [purgatory.Repositories].
func (r *Repositories) Owned(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return r.below(ctx, ".", owner)
}

// Departed yields the repositories of an owner that are out of service and still kept, of all owners for the
// zero key, in any order; an error is the last pair.
func (r *Repositories) Departed(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return r.below(ctx, departed, owner)
}

// below yields the repositories in the folders of owners that are in a folder.
func (r *Repositories) below(ctx context.Context, folder string, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return func(yield func(graspsync.RepoRef, error) bool) {
		for at, err := range r.folders(folder, owner) {
			var ref graspsync.RepoRef
			var ok bool
			if err = errors.Join(err, ctx.Err()); err == nil {
				ref, ok, err = r.refAt(folder, at)
			}
			if err != nil {
				yield(graspsync.RepoRef{}, fmt.Errorf("listing repositories: %w", err))
				return
			}
			if ok && !yield(ref, nil) {
				return
			}
		}
	}
}

// folders yields what is in the folder of an owner, or in those of all owners for the zero key, in a folder.
func (r *Repositories) folders(folder string, owner graspsync.PubKey) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		owners := []string{owner.String()}
		if owner == (graspsync.PubKey{}) {
			all, err := fs.ReadDir(r.root.FS(), folder)
			if err != nil {
				yield("", err)
				return
			}
			owners = nil
			for _, d := range all {
				if _, err := graspsync.ParsePubKey(d.Name()); err == nil {
					owners = append(owners, d.Name())
				}
			}
		}
		for _, name := range owners {
			found, err := fs.ReadDir(r.root.FS(), path.Join(folder, name))
			if err = ifExists(err); err != nil && !errors.Is(err, syscall.ENOTDIR) && !yield("", err) {
				return
			}
			for _, d := range found {
				if !yield(path.Join(name, d.Name()), nil) {
					return
				}
			}
		}
	}
}

// refAt reads whose repository it is that is in a folder, as its place is at.
func (r *Repositories) refAt(folder, at string) (ref graspsync.RepoRef, ok bool, err error) {
	if name := path.Base(at); r.plain && isPlain(name) {
		if ref.Owner, err = graspsync.ParsePubKey(path.Dir(at)); err != nil {
			return ref, false, err
		}
		ref.Identifier = name
		ok, err = r.isThere(path.Join(folder, at))
		if errors.Is(err, syscall.ENOTDIR) {
			err = nil
		}
		return ref, ok, err
	}
	text, err := r.root.ReadFile(path.Join(folder, at, "description"))
	if err != nil {
		if errors.Is(err, syscall.ENOTDIR) {
			err = nil
		}
		return ref, false, ifExists(err)
	}
	name, err := strconv.Unquote(strings.TrimSpace(string(text)))
	if err != nil {
		return ref, false, nil //nolint:nilerr // an operator's own text
	}
	ref, err = graspsync.ParseRepoRef(name)
	return ref, err == nil && r.at(ref) == at, nil
}

// Depart implements [purgatory.Repositories]. Git that reads it has it open and goes on.
func (r *Repositories) Depart(ctx context.Context, ref graspsync.RepoRef) error {
	_, unlock, err := r.Lock(ctx, ref)
	if errors.Is(err, purgatory.ErrNoRepository) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.depart(r.at(ref)); err != nil {
		return fmt.Errorf("taking a repository out of service: %w", err)
	}
	return nil
}

func (r *Repositories) depart(at string) error {
	r.staging.leave(at)
	aside := path.Join(departed, at)
	if err := r.away(aside); err != nil { // of an earlier time
		return err
	}
	err := ifExists(r.root.Remove(path.Join(at, since)))
	if err == nil {
		err = r.write(path.Join(at, since), time.Now().UTC().Format(time.RFC3339)+"\n")
	}
	if err == nil {
		err = r.place(at, aside)
	}
	if err != nil {
		return err
	}
	return errors.Join(r.sync(departed), r.sync(path.Dir(at)), r.dropOwner(path.Dir(at)))
}

// Sweep implements [purgatory.Repositories].
func (r *Repositories) Sweep(ctx context.Context, before time.Time) error {
	var errs []error
	for at, err := range r.folders(departed, graspsync.PubKey{}) {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if name := path.Base(at); path.Ext(name) != ".git" && !(r.plain && isPlain(name)) {
			continue
		}
		at = path.Join(departed, at)
		text, err := r.root.ReadFile(path.Join(at, since))
		if errors.Is(err, fs.ErrNotExist) {
			there, err := r.isThere(at)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if !there {
				continue // it was put back since
			}
		}
		left, terr := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
		if err = errors.Join(err, terr); err != nil { // somebody changed it: its time begins now
			errs = append(errs, err, ifExists(r.root.Remove(path.Join(at, since))),
				r.write(path.Join(at, since), time.Now().UTC().Format(time.RFC3339)+"\n"))
			continue
		}
		if left.Before(before) {
			errs = append(errs, r.away(at), r.dropOwner(path.Dir(at)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing repositories: %w", err)
	}
	return nil
}

// Erase implements [purgatory.Repositories].
func (r *Repositories) Erase(ctx context.Context, ref graspsync.RepoRef) error {
	if err := r.Depart(ctx, ref); err != nil {
		return err
	}
	at := path.Join(departed, r.at(ref))
	if err := errors.Join(r.away(at), r.dropOwner(path.Dir(at))); err != nil {
		return fmt.Errorf("removing repository: %w", err)
	}
	return nil
}

// place moves a folder to the place of a repository, durably.
func (r *Repositories) place(from, at string) error {
	owner := path.Dir(at)
	for try := 1; ; try++ {
		if err := r.root.Mkdir(owner, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		err := r.root.Rename(from, at)
		if err == nil {
			return errors.Join(r.sync(owner), r.sync("."))
		}
		// Another repository of the owner, the only one, may have gone meanwhile.
		if !errors.Is(err, fs.ErrNotExist) || try == createTries {
			return err
		}
	}
}

// dropOwner removes the folder of an owner who has no repository any more: keys are free.
func (r *Repositories) dropOwner(owner string) error {
	if err := r.root.Remove(owner); err == nil { // it was the last one
		return r.sync(".")
	}
	return nil
}

// fits reports whether a repository is there that is to stay as it is: also one with
// refs whose config somebody changed, or lost.
func (r *Repositories) fits(at string, format nip34.ObjectFormat) (bool, error) {
	config, err := r.root.ReadFile(path.Join(at, "config"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err == nil && string(config) == barerepo.Config(format) {
		return true, nil
	}
	return r.hasRefs(at)
}

// Remove implements [purgatory.Repositories].
func (r *Repositories) Remove(ctx context.Context, ref graspsync.RepoRef) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return r.alone(ref, func(at string) error {
		has, err := r.hasRefs(at)
		switch {
		case err != nil:
			return fmt.Errorf("removing repository: %w", err)
		case has:
			return fmt.Errorf("%w: it has refs", purgatory.ErrInUse)
		}
		return r.discard(at)
	})
}

// hasRefs reports whether a repository has refs. Nobody changes them now.
func (r *Repositories) hasRefs(at string) (bool, error) {
	refs, err := barerepo.AllRefs(r.root, filepath.FromSlash(at))
	if errors.Is(err, barerepo.ErrAskGit) {
		return true, nil
	}
	return len(refs) > 0, err
}

// discard removes a repository: in one step for all who look, and durably. What was
// pushed for events of it goes with it.
func (r *Repositories) discard(at string) error {
	r.staging.leave(at)
	if err := r.away(at); err != nil {
		return fmt.Errorf("removing repository: %w", err)
	}
	return r.dropOwner(path.Dir(at))
}

// make lays out an empty repository aside and moves it to its place. If that fails nothing
// is left aside: on a full disk it is tried again and again.
func (r *Repositories) make(at string, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	tmp := r.fresh()
	if err := r.layOut(tmp, ref, format); err != nil {
		return errors.Join(err, r.root.RemoveAll(tmp))
	}
	if err := r.place(tmp, at); err != nil {
		return errors.Join(err, r.root.RemoveAll(tmp), r.discard(at)) // it may be gone after a loss of power
	}
	return nil
}

func (r *Repositories) layOut(tmp string, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	for _, d := range []string{"", "objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags"} {
		if err := r.root.Mkdir(path.Join(tmp, d), 0o700); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"HEAD": "ref: refs/heads/main\n", "config": barerepo.Config(format),
		"description": strconv.QuoteToASCII(ref.String()) + "\n", // for the operator
	} {
		if err := r.write(path.Join(tmp, name), text); err != nil {
			return err
		}
	}
	for _, d := range []string{"objects", "refs", ""} {
		if err := r.sync(path.Join(tmp, d)); err != nil {
			return err
		}
	}
	return nil
}

// Reserve implements [purgatory.Repositories], with MaxOwnerBytes and MaxBytes of
// [RepositoriesConfig].
func (r *Repositories) Reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64, pullBytes func(owner graspsync.PubKey) int64) (done func(), err error) {
	l, err := r.quota.begin(ctx, ref, pulls, pullBytes)
	if err == nil {
		err = l.charge(bytes)
	}
	if err == nil {
		return l.end, nil
	}
	l.end()
	if full := fullError(""); errors.As(err, &full) {
		err = fmt.Errorf("%w: %w", purgatory.ErrFull, err)
	}
	return nil, err
}

// shown reads the refs of a repository and the name of the default branch. If only git can read the refs, there
// are none.
func (r *Repositories) shown(at string) (refs map[string]nip34.ObjectID, head string, err error) {
	text, err := r.root.ReadFile(path.Join(at, "HEAD"))
	if err == nil {
		refs, err = barerepo.AllRefs(r.root, filepath.FromSlash(at))
	}
	if errors.Is(err, barerepo.ErrAskGit) {
		err = nil
	}
	head, _ = strings.CutPrefix(strings.TrimSpace(string(text)), "ref: ")
	if _, ok := refs[head]; !ok {
		head = ""
	}
	return refs, head, err
}

// refs reads all refs, as git does. The error wraps [barerepo.ErrAskGit] if only git can say.
func (r *Repositories) refs(at string) (map[string]nip34.ObjectID, nip34.ObjectFormat, error) {
	from, err := barerepo.Read(r.root, filepath.FromSlash(at))
	if err != nil {
		return nil, 0, err
	}
	refs, err := from.Refs()
	return refs, from.Format(), err
}

// Staged implements [purgatory.Repositories].
func (r *Repositories) Staged(ref graspsync.RepoRef, id graspsync.EventID) []purgatory.Upload {
	return r.staging.of(ref, id)
}

// Unstage implements [purgatory.Repositories].
func (r *Repositories) Unstage(ref graspsync.RepoRef, id graspsync.EventID) {
	r.staging.strike(ref, id)
}

// Staging is where what was pushed for events that are not here lies.
func (r *Repositories) Staging() *Staging { return r.staging }

// About is what there is of a repository on the disk, for people.
type About struct {
	Here bool   `json:"here"`
	Dir  string `json:"dir,omitempty"` // where it is, or was put aside, below the folder of repositories
	// Branches and Tags that it has; HEAD is the default branch, "" if there is none.
	Branches int    `json:"branches"`
	Tags     int    `json:"tags"`
	HEAD     string `json:"head,omitempty"`
	// Departed is since when it is out of service, zero if it is not; it is kept for a week.
	Departed time.Time `json:"departed,omitzero"`
}

// About returns what there is of a repository. It reads the names of its refs, without git.
func (r *Repositories) About(ref graspsync.RepoRef) (a About, err error) {
	at := r.at(ref)
	refs, head, err := r.shown(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r.aboutDeparted(at)
	case err != nil:
		return About{}, fmt.Errorf("looking at a repository: %w", err)
	}
	a = About{Here: true, Dir: at, HEAD: graspsync.Printable(head)}
	for name := range refs {
		switch {
		case strings.HasPrefix(name, "refs/heads/"):
			a.Branches++
		case strings.HasPrefix(name, "refs/tags/"):
			a.Tags++
		}
	}
	return a, nil
}

func (r *Repositories) aboutDeparted(at string) (a About, err error) {
	aside := path.Join(departed, at)
	text, err := r.root.ReadFile(path.Join(aside, since))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return About{}, nil
	case err != nil:
		return About{}, fmt.Errorf("looking at a repository: %w", err)
	}
	if a.Departed, err = time.Parse(time.RFC3339, strings.TrimSpace(string(text))); err != nil {
		return About{}, fmt.Errorf("looking at a repository: %w", err)
	}
	a.Dir = aside
	return a, nil
}
