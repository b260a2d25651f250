package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"net/http"
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

// Repositories is a set of bare repositories below one folder, see [Open]. All methods may be
// called concurrently.
type Repositories struct {
	*layout
	lock    *os.File // lock of the folder, inherited by git
	git     *gitrun.Program
	faults  fsck.Rules
	tasks   *tasks // background work
	log     *slog.Logger
	quota   *diskQuota
	staging *Staging
	// Only one push per repository waits for its lock. Other pushes wait in queues.
	locks  *keyed.Locks[graspsync.RepoRef]
	queues *keyed.Shared[graspsync.RepoRef, *limit.Slots]
	owners sync.Mutex // held while the folder of an owner is created or removed
}

var _ purgatory.Repositories = (*Repositories)(nil)

const (
	departed  = "departed"
	keptUntil = "departed" // file with the end of the time of a retired repository
)

// Open opens or creates a folder of repositories, and removes incomplete data of a crash. It waits
// up to 5 s for another process, or git of a killed process, that uses the folder. Then the error
// wraps [ErrLocked]. An error that wraps [ErrConfig] names every invalid field.
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

func openAt(dir string, root folder, lock *os.File, cfg RepositoriesConfig) (_ *Repositories, err error) {
	r := &Repositories{
		layout: &layout{dir: dir, root: root, flush: (*os.File).Sync, plain: cfg.PlainNames},
		lock:   lock,
		git:    &gitrun.Program{Path: cfg.Git, Settings: settings(), Environment: gitrun.Environment(), Memory: NewMemory(cfg)},
		tasks:  newTasks(),
		log:    cfg.Logger,
		locks:  keyed.NewLocks[graspsync.RepoRef](),
		queues: keyed.NewShared[graspsync.RepoRef](func() *limit.Slots { return limit.NewSlots(1, 1) }),
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening repositories: %w", err), r.Close())
		}
	}()
	if r.faults, err = fsck.New(cfg.AllowFaults); err != nil {
		return nil, fmt.Errorf("%w: AllowFaults: %w", ErrConfig, err)
	}
	r.quota = &diskQuota{layout: r.layout, owner: cfg.MaxOwnerBytes, all: cfg.MaxBytes, tasks: r.tasks, log: cfg.Logger}
	if err := errors.Join(root.RemoveAll(incoming), root.Mkdir(incoming, 0o700)); err != nil {
		return nil, err
	}
	if err := root.Mkdir(departed, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if r.staging, err = openStaging(r.layout, cfg, r.tasks); err != nil {
		return nil, fmt.Errorf("opening the staging area: %w", err)
	}
	r.tasks.beside(r.sweepRetired)
	return r, nil
}

// ErrLocked reports that another process uses the folder.
var ErrLocked = errors.New("another process uses the folder")

const (
	lockMost  = 5 * time.Second
	lockPause = 5 * time.Millisecond
)

func lockFolder(dir string, most time.Duration) (*os.File, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(most); ; {
		locked, err := filelock.TryLock(folder)
		switch {
		case locked:
			return folder, nil
		case err != nil:
			return nil, errors.Join(err, folder.Close())
		case time.Now().After(end):
			return nil, errors.Join(ErrLocked, folder.Close())
		}
		<-time.After(lockPause)
	}
}

// Writable returns an error if the folder is not writable.
func (r *Repositories) Writable() error {
	file, err := r.scratch()
	if err == nil {
		err = errors.Join(r.flush(file), file.Close())
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

func (r *Repositories) existing(ref graspsync.RepoRef) (dir string, err error) {
	there, err := r.isThere(r.at(ref))
	switch {
	case err != nil:
		return "", fmt.Errorf("opening repository: %w", err)
	case !there:
		return "", purgatory.ErrNoRepository
	}
	return filepath.Join(r.dir, filepath.FromSlash(r.at(ref))), nil
}

// Lock implements [purgatory.Repositories]. Readers need no lock.
func (r *Repositories) Lock(ctx context.Context, ref graspsync.RepoRef) (dir string, unlock func(), err error) {
	if unlock, err = r.locks.Lock(ctx, ref); err != nil {
		return "", nil, fmt.Errorf("locking a repository: %w", err)
	}
	if dir, err = r.existing(ref); err != nil {
		unlock()
		return "", nil, err
	}
	return dir, unlock, nil
}

func (r *Repositories) queue(ctx context.Context, ref graspsync.RepoRef, who limit.Stranger) (done func(), err error) {
	next, left := r.queues.Use(ref)
	slot, err := next.Acquire(ctx, who, 1)
	if err != nil {
		left()
		return nil, fmt.Errorf("waiting for a repository: %w", err)
	}
	return func() {
		slot.Release()
		left()
	}, nil
}

// Create implements [purgatory.Repositories].
func (r *Repositories) Create(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	at := r.at(ref)
	same, err := r.fits(at, format)
	if err == nil && !same {
		var unlock func()
		if unlock, err = r.locks.Lock(ctx, ref); err == nil {
			defer unlock()
			err = r.create(at, ref, format)
		}
	}
	if err != nil {
		return fmt.Errorf("creating repository: %w", err)
	}
	return nil
}

// create restores a retired repository, or makes an empty one. The caller holds the lock.
func (r *Repositories) create(at string, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
	if err := r.takeBack(at); err != nil {
		return err
	}
	if same, err := r.fits(at, format); err != nil || same {
		return err
	}
	return errors.Join(r.discard(at), r.make(at, ref, format))
}

func (r *Repositories) takeBack(at string) error {
	aside := path.Join(departed, at)
	if there, err := r.isThere(at); err != nil || there {
		return err
	}
	if there, err := r.isThere(aside); err != nil || !there {
		return err
	}
	if err := r.place(aside, at); err != nil {
		return fmt.Errorf("restoring a repository: %w", err)
	}
	return errors.Join(r.sync(path.Dir(aside)), r.dropOwner(path.Dir(aside)), ifExists(r.root.Remove(path.Join(at, keptUntil))))
}

// ifExists returns err unless a file is missing, or is a folder or the reverse.
func ifExists(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return err
}

// Owned implements [purgatory.Repositories].
func (r *Repositories) Owned(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return r.below(ctx, ".", owner)
}

// Departed yields the retired repositories of an owner, or of all owners for the zero key. Nothing
// follows an error.
func (r *Repositories) Departed(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error] {
	return r.below(ctx, departed, owner)
}

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
			if err = ifExists(err); err != nil && !yield("", err) {
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

func (r *Repositories) refAt(folder, at string) (ref graspsync.RepoRef, ok bool, err error) {
	if name := path.Base(at); r.plain && isPlain(name) {
		ref.Identifier = name
		if ref.Owner, err = graspsync.ParsePubKey(path.Dir(at)); err == nil {
			ok, err = r.isThere(path.Join(folder, at))
		}
		return ref, ok, err
	}
	text, err := r.root.ReadFile(path.Join(folder, at, "description"))
	if err != nil {
		return ref, false, ifExists(err)
	}
	name, err := strconv.Unquote(strings.TrimSpace(string(text)))
	if err != nil {
		return ref, false, nil //nolint:nilerr // an operator changed the text
	}
	ref, err = graspsync.ParseRepoRef(name)
	return ref, err == nil && r.at(ref) == at, nil
}

// Retire implements [purgatory.Repositories].
func (r *Repositories) Retire(ctx context.Context, ref graspsync.RepoRef, keep time.Duration) (kept bool, err error) {
	at := r.at(ref)
	_, unlock, err := r.Lock(ctx, ref)
	switch {
	case err == nil:
		defer unlock()
		if kept, err = barerepo.HasRefs(r.root, filepath.FromSlash(at)); err != nil {
			break
		}
		if kept = kept && keep > 0; kept {
			err = r.depart(at, keep)
		} else {
			err = r.discard(at)
		}
	case errors.Is(err, purgatory.ErrNoRepository):
		err = nil
	}
	if aside := path.Join(departed, at); err == nil && keep <= 0 {
		err = errors.Join(r.away(aside), r.dropOwner(path.Dir(aside)))
	}
	if err != nil {
		return false, fmt.Errorf("retiring a repository: %w", err)
	}
	return kept, nil
}

func (r *Repositories) depart(at string, keep time.Duration) error {
	r.staging.leave(at)
	aside := path.Join(departed, at)
	if err := r.away(aside); err != nil { // from an earlier retirement
		return err
	}
	err := ifExists(r.root.Remove(path.Join(at, keptUntil)))
	if err == nil {
		err = r.write(path.Join(at, keptUntil), time.Now().Add(keep).UTC().Format(time.RFC3339))
	}
	if err == nil {
		err = r.place(at, aside)
	}
	if err != nil {
		return err
	}
	return errors.Join(r.sync(departed), r.sync(path.Dir(at)), r.dropOwner(path.Dir(at)))
}

func (r *Repositories) retiredUntil(at string) (until time.Time, err error) {
	text, err := r.root.ReadFile(path.Join(at, keptUntil))
	if err == nil {
		err = until.UnmarshalText(text)
	}
	return until, err
}

const (
	sweepPeriod = time.Hour
	firstSweep  = time.Minute
)

func (r *Repositories) sweepRetired(ctx context.Context) {
	for wait := firstSweep; ; wait = sweepPeriod {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if err := r.deleteRetired(ctx, time.Now()); err != nil && ctx.Err() == nil {
			r.log.Warn("removing retired repositories failed", "error", graspsync.Printable(err.Error()))
		}
	}
}

func (r *Repositories) deleteRetired(ctx context.Context, now time.Time) error {
	var errs []error
	for at, err := range r.folders(departed, graspsync.PubKey{}) {
		at = path.Join(departed, at)
		var until time.Time
		if err = errors.Join(err, ctx.Err()); err == nil {
			until, err = r.retiredUntil(at)
		}
		if ifExists(err) == nil && err != nil { // it was put back, or is no repository
			continue
		}
		if err == nil && now.After(until) {
			err = errors.Join(r.away(at), r.dropOwner(path.Dir(at)))
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing repositories: %w", err)
	}
	return nil
}

func (r *Repositories) place(from, at string) error {
	owner := path.Dir(at)
	r.owners.Lock()
	err := r.root.Mkdir(owner, 0o700)
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = r.root.Rename(from, at)
	}
	r.owners.Unlock()
	if err != nil {
		return err
	}
	return errors.Join(r.sync(owner), r.sync("."))
}

// dropOwner removes the empty folder of an owner, because keys are free.
func (r *Repositories) dropOwner(owner string) error {
	r.owners.Lock()
	err := r.root.Remove(owner)
	r.owners.Unlock()
	if err == nil { // it was the last one
		return r.sync(".")
	}
	return nil
}

// fits reports whether a repository need not be created again, because it has this object format, or
// has refs, even if its config was lost.
func (r *Repositories) fits(at string, format nip34.ObjectFormat) (bool, error) {
	config, err := r.root.ReadFile(path.Join(at, "config"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err == nil && string(config) == barerepo.Config(format) {
		return true, nil
	}
	return barerepo.HasRefs(r.root, filepath.FromSlash(at))
}

func (r *Repositories) discard(at string) error {
	r.staging.leave(at)
	if err := r.away(at); err != nil {
		return fmt.Errorf("removing repository: %w", err)
	}
	return r.dropOwner(path.Dir(at))
}

// make creates an empty repository, or nothing, because callers retry on a full disk.
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
func (r *Repositories) Reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64) error {
	err := r.quota.reserve(ctx, ref, pulls, bytes)
	if isRefusal(err, http.StatusInsufficientStorage) {
		err = fmt.Errorf("%w: %w", purgatory.ErrFull, err)
	}
	return err
}

func (r *Repositories) shown(at string) (refs map[string]nip34.ObjectID, head string, err error) {
	text, err := r.root.ReadFile(path.Join(at, "HEAD"))
	if err == nil {
		refs, err = barerepo.AllRefs(r.root, filepath.FromSlash(at))
	}
	head, _ = strings.CutPrefix(strings.TrimSpace(string(text)), "ref: ")
	if _, ok := refs[head]; !ok {
		head = ""
	}
	return refs, head, err
}

// Staged implements [purgatory.Repositories].
func (r *Repositories) Staged(ref graspsync.RepoRef, id graspsync.EventID) []purgatory.Upload {
	return r.staging.of(ref, id)
}

// Staging returns the staging area.
func (r *Repositories) Staging() *Staging { return r.staging }

// About is a summary of a repository on disk, for operators.
type About struct {
	Here     bool   `json:"here"`
	Dir      string `json:"dir,omitempty"` // folder of the repository, or of the retired repository, below the folder of repositories
	Branches int    `json:"branches"`
	Tags     int    `json:"tags"`
	HEAD     string `json:"head,omitempty"`
	// Until is the time until which a retired repository is kept, or zero.
	Until time.Time `json:"until,omitzero"`
}

// About returns the [About] of a repository. It reads refs without git.
func (r *Repositories) About(ref graspsync.RepoRef) (a About, err error) {
	a.Dir = r.at(ref)
	refs, head, err := r.shown(a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		a.Dir = path.Join(departed, a.Dir)
		if a.Until, err = r.retiredUntil(a.Dir); errors.Is(err, fs.ErrNotExist) {
			return About{}, nil
		}
	} else {
		a.Here, a.HEAD = true, graspsync.Printable(head)
	}
	if err != nil {
		return About{}, fmt.Errorf("looking at a repository: %w", err)
	}
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
