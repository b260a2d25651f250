package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
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
	"github.com/graspsync/graspsync/internal/filelock"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
)

// Repositories is a set of bare repositories below one folder. Make it with [Open]. All methods may
// be called concurrently. Only one process can use a folder.
type Repositories struct {
	*layout
	lock    *os.File // lock of the folder, inherited by git
	git     *program
	faults  fsck.Rules
	tasks   *tasks // background work
	log     *slog.Logger
	quota   *diskQuota
	staging *Staging
	// inUse contains the repositories that are in use or locked. Only one push per repository waits
	// for the lock. Other pushes wait in queues.
	inUse  *keyed.Locks[graspsync.RepoRef]
	queues *keyed.Shared[graspsync.RepoRef, *limit.Slots]

	mu sync.Mutex
	// guarded by mu
	unsure map[graspsync.RepoRef]struct{} // its last push may not be durable
}

var (
	_ purgatory.Repositories = (*Repositories)(nil)
)

// departed is the folder of retired repositories. since is the file with the times of
// noteRetired.
const (
	departed = "departed"
	since    = "departed"
)

// Open opens a folder of repositories, and creates the folder if it does not exist. It removes
// incomplete data of a crash, and staged data that expired or exceeds the limits. While another
// process uses the folder, or git of a killed process is running, Open waits up to 5 s. Then the
// error wraps [ErrLocked]. For an invalid configuration the error wraps [ErrConfig] and names every
// invalid field.
func Open(dir string, cfg RepositoriesConfig) (*Repositories, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	git, err := exec.LookPath(cfg.Git)
	if err != nil {
		errs = append(errs, fmt.Errorf("Git: %w", err))
	}
	if _, err := exec.LookPath(gitrun.Shell); err != nil {
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

// openAt opens a locked folder. It releases the lock on error.
func openAt(dir string, root folder, lock *os.File, cfg RepositoriesConfig) (_ *Repositories, err error) {
	in := newLayout(dir, root)
	in.plain = cfg.PlainNames
	r := &Repositories{
		layout: in, lock: lock, unsure: make(map[graspsync.RepoRef]struct{}),
		git:    &program{path: cfg.Git, settings: settings(), memory: NewMemory(cfg), lock: lock},
		tasks:  newTasks(),
		log:    cfg.Logger,
		inUse:  keyed.NewLocks[graspsync.RepoRef](),
		queues: keyed.NewShared[graspsync.RepoRef](func() *limit.Slots { return limit.NewSlots(1, 1) }),
	}
	if r.faults, err = fsck.New(cfg.AllowFaults); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: AllowFaults: %w", ErrConfig, err), r.Close())
	}
	r.quota = &diskQuota{
		layout: r.layout, owner: cfg.MaxOwnerBytes, all: cfg.MaxBytes, weigh: r.git.weighPulls, tasks: r.tasks, log: cfg.Logger,
		usages: make(map[string]*usage),
	}
	if err = r.sweepLocked(); err == nil { // otherwise the marks stay for the next call
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
	r.tasks.beside(r.sweepRetired)
	return r, nil
}

// ErrLocked reports that another process uses the folder.
var ErrLocked = errors.New("another process uses the folder")

// lockMost is the maximum time that Open waits for another process. Git of a killed process ends
// much earlier.
const lockMost = 5 * time.Second

// lockFolder locks a folder and waits up to most. The lock lasts while any process has the file
// open.
func lockFolder(dir string, most time.Duration) (*os.File, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(most); ; {
		locked, err := filelock.Try(folder)
		switch {
		case locked:
			return folder, nil
		case err != nil:
			return nil, errors.Join(err, folder.Close())
		case time.Now().After(end):
			return nil, errors.Join(ErrLocked, folder.Close())
		}
		<-time.After(createPause)
	}
}

// Writable returns an error if the folder is not writable. It creates, syncs and removes a file.
func (r *Repositories) Writable() error {
	name := r.fresh()
	err := r.write(name, "")
	if removed := r.root.Remove(name); err == nil { // even after an error the file may exist
		err = removed
	}
	if err != nil {
		return fmt.Errorf("writing to the folder of repositories: %w", err)
	}
	return nil
}

// Close releases the folder. No other method may be called afterwards.
func (r *Repositories) Close() error {
	r.tasks.close()
	err := r.lock.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil // closed before
	}
	return errors.Join(r.root.Close(), err)
}

// use prevents the removal of a repository until done is called. done must be called once. It waits
// for a concurrent creation.
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

// Lock implements [purgatory.Repositories]. Readers need no lock.
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

// locked creates the mark of a locked repository, from which Open detects a crash.
func (r *Repositories) locked(ref graspsync.RepoRef, release func()) (unlock func(), err error) {
	if err := r.ready(ref); err != nil {
		release()
		return nil, err
	}
	if file, err := r.root.Create(r.mark(ref)); err == nil { // without a mark, the next maintenance repairs
		_ = file.Close() // the file is empty
	}
	return func() {
		if !r.isUnsure(ref) {
			_ = r.root.Remove(r.mark(ref)) // a stale mark only costs a check
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

// ready returns an error if a repository does not exist, or if its last push cannot be made
// durable. The caller holds its lock.
func (r *Repositories) ready(ref graspsync.RepoRef) error {
	_, err := r.root.Stat(path.Join(r.at(ref), "HEAD"))
	unsure := r.isUnsure(ref)
	if err == nil && unsure {
		if err := r.syncPushed(r.at(ref)); err != nil {
			return fmt.Errorf("syncing an earlier push: %w", err)
		}
	}
	if unsure && (err == nil || errors.Is(err, fs.ErrNotExist)) { // the repository may be removed
		r.mu.Lock()
		delete(r.unsure, ref)
		r.mu.Unlock()
	}
	if err != nil {
		return missing(err)
	}
	return nil
}

// tryLock is [Repositories.Lock] without waiting.
func (r *Repositories) tryLock(ref graspsync.RepoRef) (unlock func(), ok bool, err error) {
	unlock, ok = r.inUse.TryLock(ref)
	if !ok {
		return nil, false, nil
	}
	unlock, err = r.locked(ref, unlock)
	return unlock, err == nil, err
}

// queue waits until no other push holds or waits for the lock of a repository.
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

// alone runs f if no other caller uses the repository. Otherwise the error wraps
// [purgatory.ErrInUse].
func (r *Repositories) alone(ref graspsync.RepoRef, f func(at string) error) error {
	unlock, ok := r.inUse.LockUnused(ref)
	if !ok {
		return fmt.Errorf("%w: a client uses it", purgatory.ErrInUse)
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
		// Another caller creates the repository, or has just looked for it.
		select {
		case <-time.After(createPause):
		case <-ctx.Done():
			return fmt.Errorf("creating repository: %w", context.Cause(ctx))
		}
	}
}

// Create retries while a repository is in use, because a missing repository is in use only briefly.
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
			return err // created concurrently
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

// takeBack puts a retired repository back into service. It reports false if there is none, or if
// the repository exists.
func (r *Repositories) takeBack(at string) (bool, error) {
	aside := path.Join(departed, at)
	if _, err := r.root.Stat(path.Join(at, "HEAD")); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if _, err := r.root.Stat(path.Join(aside, "HEAD")); err != nil {
		return false, ifExists(err)
	}
	if err := r.place(aside, at); err != nil {
		return false, fmt.Errorf("restoring a repository: %w", err)
	}
	return true, errors.Join(r.sync(path.Dir(aside)), r.dropOwner(path.Dir(aside)), ifExists(r.root.Remove(path.Join(at, since))))
}

// ifExists returns err unless it reports a missing file.
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

// Departed yields the retired repositories of an owner, or of all owners for the zero key, in any
// order. After an error nothing follows.
func (r *Repositories) Departed(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return r.below(ctx, departed, owner)
}

// below yields the repositories in the owner folders of a folder.
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

// folders yields the entries in the folder of an owner, or of all owners for the zero key.
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

// refAt returns the address of the repository at a path in a folder.
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
		return ref, false, nil //nolint:nilerr // an operator changed the text
	}
	ref, err = graspsync.ParseRepoRef(name)
	return ref, err == nil && r.at(ref) == at, nil
}

// Retire implements [purgatory.Repositories]. A git process that is reading the repository
// continues.
func (r *Repositories) Retire(ctx context.Context, ref graspsync.RepoRef, keep time.Duration) (kept bool, err error) {
	err = r.remove(ctx, ref)
	if errors.Is(err, purgatory.ErrInUse) {
		kept, err = r.retire(ctx, ref, keep)
	}
	if err == nil && keep <= 0 {
		at := path.Join(departed, r.at(ref))
		kept, err = false, errors.Join(r.away(at), r.dropOwner(path.Dir(at)))
	}
	if err != nil {
		return false, fmt.Errorf("retiring a repository: %w", err)
	}
	return kept, nil
}

// retire moves a repository to the retired ones. It reports false if there is none.
func (r *Repositories) retire(ctx context.Context, ref graspsync.RepoRef, keep time.Duration) (bool, error) {
	_, unlock, err := r.Lock(ctx, ref)
	if errors.Is(err, purgatory.ErrNoRepository) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	return true, r.depart(r.at(ref), keep)
}

func (r *Repositories) depart(at string, keep time.Duration) error {
	r.staging.leave(at)
	aside := path.Join(departed, at)
	if err := r.away(aside); err != nil { // from an earlier retirement
		return err
	}
	err := ifExists(r.root.Remove(path.Join(at, since)))
	if err == nil {
		err = r.noteRetired(at, keep)
	}
	if err == nil {
		err = r.place(at, aside)
	}
	if err != nil {
		return err
	}
	return errors.Join(r.sync(departed), r.sync(path.Dir(at)), r.dropOwner(path.Dir(at)))
}

// noteRetired writes the time of retirement and the time until which the folder is kept.
func (r *Repositories) noteRetired(at string, keep time.Duration) error {
	now := time.Now().UTC()
	return r.write(path.Join(at, since), now.Format(time.RFC3339)+" "+now.Add(keep).Format(time.RFC3339)+"\n")
}

// retiredAt returns the times of noteRetired.
func (r *Repositories) retiredAt(at string) (retired, until time.Time, err error) {
	text, err := r.root.ReadFile(path.Join(at, since))
	if err != nil {
		return retired, until, err
	}
	from, to, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if retired, err = time.Parse(time.RFC3339, from); err == nil {
		until, err = time.Parse(time.RFC3339, to)
	}
	return retired, until, err
}

// sweepPeriod is the time between two deletions of retired folders, firstSweep the time from the
// start to the first one. unknownKeep is the time for
// which a folder is kept if its times were lost.
const (
	sweepPeriod = time.Hour
	firstSweep  = time.Minute
	unknownKeep = 7 * 24 * time.Hour
)

// sweepRetired deletes retired folders until ctx ends.
func (r *Repositories) sweepRetired(ctx context.Context) {
	timer := time.NewTimer(firstSweep)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := r.deleteRetired(ctx, time.Now()); err != nil && ctx.Err() == nil {
			r.log.Warn("removing retired repositories failed", "error", graspsync.Printable(err.Error()))
		}
		timer.Reset(sweepPeriod)
	}
}

// deleteRetired deletes the folders of repositories whose time is over.
func (r *Repositories) deleteRetired(ctx context.Context, now time.Time) error {
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
		_, until, err := r.retiredAt(at)
		if errors.Is(err, fs.ErrNotExist) {
			there, err := r.isThere(at)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if !there {
				continue // the repository was put back
			}
		}
		switch {
		case errors.As(err, new(*time.ParseError)) || errors.Is(err, fs.ErrNotExist): // the time begins now
			errs = append(errs, err, ifExists(r.root.Remove(path.Join(at, since))), r.noteRetired(at, unknownKeep))
		case err != nil:
			errs = append(errs, err)
		case now.After(until):
			errs = append(errs, r.away(at), r.dropOwner(path.Dir(at)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing repositories: %w", err)
	}
	return nil
}

// place moves a folder to the path of a repository, durably.
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
		// The owner folder may have been removed with the owner's only repository.
		if !errors.Is(err, fs.ErrNotExist) || try == createTries {
			return err
		}
	}
}

// dropOwner removes the empty folder of an owner, because keys are free and folders would
// accumulate.
func (r *Repositories) dropOwner(owner string) error {
	if err := r.root.Remove(owner); err == nil { // it was the last one
		return r.sync(".")
	}
	return nil
}

// fits reports whether an existing repository must stay as it is. A repository with refs stays even
// if its config was changed or lost.
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

// remove deletes a repository. The error wraps [purgatory.ErrInUse] if it has refs or is in use.
func (r *Repositories) remove(ctx context.Context, ref graspsync.RepoRef) error {
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

// hasRefs reports whether a repository has refs. The caller must prevent concurrent changes.
func (r *Repositories) hasRefs(at string) (bool, error) {
	refs, err := barerepo.AllRefs(r.root, filepath.FromSlash(at))
	if errors.Is(err, barerepo.ErrAskGit) {
		return true, nil
	}
	return len(refs) > 0, err
}

// discard removes a repository and its staged data, atomically and durably.
func (r *Repositories) discard(at string) error {
	r.staging.leave(at)
	if err := r.away(at); err != nil {
		return fmt.Errorf("removing repository: %w", err)
	}
	return r.dropOwner(path.Dir(at))
}

// make creates an empty repository in a temporary folder and moves it into place. It removes the
// temporary folder on error, because callers retry on a full disk.
func (r *Repositories) make(at string, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	tmp := r.fresh()
	if err := r.layOut(tmp, ref, format); err != nil {
		return errors.Join(err, r.root.RemoveAll(tmp))
	}
	if err := r.place(tmp, at); err != nil {
		return errors.Join(err, r.root.RemoveAll(tmp), r.discard(at)) // a power failure may have lost the entry
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
func (r *Repositories) Reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64, pullBytes func(owner graspsync.PubKey) int64) error {
	err := r.quota.reserve(ctx, ref, pulls, bytes, pullBytes)
	if full := fullError(""); errors.As(err, &full) {
		err = fmt.Errorf("%w: %w", purgatory.ErrFull, err)
	}
	return err
}

// shown returns the refs of a repository and the name of the default branch. It returns no refs if
// only git can read them.
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

// refs returns all refs. The error wraps [barerepo.ErrAskGit] if only git can read them.
func (r *Repositories) refs(at string) (map[string]nip34.ObjectID, nip34.ObjectFormat, error) {
	format, err := barerepo.Format(r.root, filepath.FromSlash(at))
	if err != nil {
		return nil, 0, err
	}
	refs, err := barerepo.AllRefs(r.root, filepath.FromSlash(at))
	return refs, format, err
}

// Staged implements [purgatory.Repositories].
func (r *Repositories) Staged(ref graspsync.RepoRef, id graspsync.EventID) []purgatory.Upload {
	return r.staging.of(ref, id)
}

// Staging returns the staging area.
func (r *Repositories) Staging() *Staging { return r.staging }

// About is a summary of a repository on disk, for operators.
type About struct {
	Here bool   `json:"here"`
	Dir  string `json:"dir,omitempty"` // folder of the repository, or of the retired repository, below the folder of repositories
	// Branches and Tags are numbers of refs. HEAD is the default branch, or "".
	Branches int    `json:"branches"`
	Tags     int    `json:"tags"`
	HEAD     string `json:"head,omitempty"`
	// Departed is the time of retirement, or zero. Retired repositories are kept for a week.
	Departed time.Time `json:"departed,omitzero"`
}

// About returns a summary of a repository. It reads refs without git.
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
	a.Departed, _, err = r.retiredAt(aside)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return About{}, nil
	case err != nil:
		return About{}, fmt.Errorf("looking at a repository: %w", err)
	}
	a.Dir = aside
	return a, nil
}
