package gitserve

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
)

// diskQuota bounds the bytes of the repositories of one owner, and of all. It measures the disk: an owner
// before a push if the measurement is older than quotaAge or if a push has ended since, and all every
// quotaPeriod. Between measurements it adds the bytes of pushes and fetches under way.
type diskQuota struct {
	// set by newDiskQuota, read-only
	layout     *layout
	owner, all int64 // bytes; zero: no limit
	// weigh returns how many bytes of a repository only pull requests need.
	weigh    func(ctx context.Context, dir string) (int64, error)
	tasks    *tasks // for the measurement of all
	failures *failures

	measuring *keyed.Locks[string] // by the folder of the owner
	walking   atomic.Bool

	mu sync.Mutex
	// guarded by mu
	usages        map[string]*usage // by the folder of the owner
	disk, pending int64             // of all owners
	walked        time.Time         // when all were measured
}

// usage is the disk usage of one owner.
type usage struct {
	bytes    int64     // of its repositories
	disk     int64     // with incomplete files; a file of n links counts for one n-th
	measured time.Time // zero if it is to be measured again

	pulls        int64     // part of bytes that only pull requests need
	known        bool      // pulls was found out once
	weighed      time.Time // the last attempt to find out
	weighedBytes int64     // value of bytes then
	failed       bool

	pending, pendingPulls int64 // of pushes and fetches under way
}

// own returns the bytes that count for the owner, who may have most. Anybody can write pull requests, so these
// have a room of the same size for themselves. As long as their share is unknown they may fill it.
func (u *usage) own(most int64) int64 {
	pulls := u.pulls
	if !u.known && u.bytes > most/2 {
		pulls = min(u.bytes, most)
	}
	return u.bytes + u.pending - u.pendingPulls - pulls
}

const (
	quotaAge    = time.Minute
	quotaPeriod = time.Hour
	weighMost   = 20 * time.Second // for the pull requests of one owner
)

// Why repositories have no more room, for who pushed.
var (
	errOwnerFull = errors.New("the repositories of this owner take up all that they may on this server")
	errPullsFull = errors.New("pull requests for the repositories of this owner take up all that they may on this server")
	errFull      = errors.New("the repositories of this server take up all that they may")
)

func newDiskQuota(l *layout, cfg RepositoriesConfig, weigh func(ctx context.Context, dir string) (int64, error), tasks *tasks, failures *failures) *diskQuota {
	return &diskQuota{
		layout: l, owner: cfg.MaxOwnerBytes, all: cfg.MaxBytes, weigh: weigh, tasks: tasks, failures: failures,
		measuring: keyed.NewLocks[string](), usages: make(map[string]*usage),
	}
}

// reservation is the room of one push or fetch that is under way. A nil one is unlimited.
type reservation struct {
	q     *diskQuota
	ref   graspsync.RepoRef
	pulls bool // only for pull requests
	bytes int64
}

// begin returns a reservation without bytes, or why there is no room. The caller must end it. pullBytes returns
// how many bytes pull requests of strangers take up in the repositories of an owner.
func (q *diskQuota) begin(ctx context.Context, ref graspsync.RepoRef, pulls bool, pullBytes func(owner graspsync.PubKey) int64) (*reservation, error) {
	if q.owner == 0 && q.all == 0 {
		return nil, nil
	}
	if err := q.refresh(ctx, ref.Owner.String(), func(ctx context.Context, u *usage) { q.weighPulls(ctx, u, ref, pullBytes) }); err != nil {
		return nil, err
	}
	r := &reservation{q: q, ref: ref, pulls: pulls}
	err := r.charge(0)
	q.mu.Lock()
	stale := q.all > 0 && time.Since(q.walked) >= quotaPeriod
	q.mu.Unlock()
	if stale && q.walking.CompareAndSwap(false, true) && !q.tasks.beside(q.walk) {
		q.walking.Store(false)
	}
	return r, err
}

// charge sets the bytes of a reservation. The error is why there is no room for them.
func (r *reservation) charge(bytes int64) error {
	if r == nil {
		return nil
	}
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	u := r.add(bytes)
	switch {
	case q.owner > 0 && r.pulls && u.pulls+u.pendingPulls >= q.owner:
		return errPullsFull
	case q.owner > 0 && !r.pulls && u.own(q.owner) >= q.owner:
		return errOwnerFull
	case q.all > 0 && q.disk+q.pending >= q.all:
		return errFull
	}
	return nil
}

// add is called with mu of the quota held.
func (r *reservation) add(bytes int64) *usage {
	u, more := r.q.usage(r.ref.Owner.String()), bytes-r.bytes
	r.bytes = bytes
	r.q.pending += more
	u.pending += more
	if r.pulls {
		u.pendingPulls += more
	}
	return u
}

// end releases a reservation. The owner is measured before the next one.
func (r *reservation) end() {
	if r == nil || r.bytes == 0 {
		return
	}
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	r.add(0).measured = time.Time{}
}

// usage is called with mu held.
func (q *diskQuota) usage(folder string) *usage {
	u := q.usages[folder]
	if u == nil {
		u = &usage{}
		q.usages[folder] = u
	}
	return u
}

// refresh measures an owner unless the last measurement is valid, and calls then. One caller at a time
// does this for an owner, and others wait.
func (q *diskQuota) refresh(ctx context.Context, folder string, then func(context.Context, *usage)) error {
	unlock, err := q.measuring.Lock(ctx, folder)
	if err != nil {
		return fmt.Errorf("measuring repositories: %w", err)
	}
	defer unlock()
	q.mu.Lock()
	u := q.usage(folder)
	valid := time.Since(u.measured) < quotaAge
	if !valid {
		u.measured = time.Now() // a push that ends from now on makes it invalid
	}
	q.mu.Unlock()
	if !valid {
		bytes, disk, err := q.measure(ctx, folder)
		q.mu.Lock()
		if err != nil {
			u.measured = time.Time{}
			q.mu.Unlock()
			return fmt.Errorf("measuring repositories: %w", err)
		}
		q.disk += disk - u.disk
		u.bytes, u.disk = bytes, disk
		if disk == 0 && u.pending == 0 {
			delete(q.usages, folder)
		}
		q.mu.Unlock()
	}
	then(ctx, u)
	return nil
}

// measure returns the bytes of an owner's repositories, and of all its files.
func (q *diskQuota) measure(ctx context.Context, folder string) (bytes, disk int64, err error) {
	add := func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				disk += info.Size() / linksOf(info)
				if !forNow(name) {
					bytes += info.Size()
				}
			}
		}
		return ifExists(err) // it may go meanwhile
	}
	// A repository out of service takes room until it is deleted.
	err = errors.Join(fs.WalkDir(q.layout.root.FS(), folder, add), fs.WalkDir(q.layout.root.FS(), path.Join(departed, folder), add))
	return bytes, disk, err
}

// forNow reports whether a file is no part of its repository, or not yet: what is being
// fetched, what git is about to finish. It is on the disk, but nobody's: what maintenance
// writes anew would count for its owner twice, and a push that comes is charged already.
func forNow(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return strings.HasPrefix(part, barerepo.QuarantinePrefix) || strings.HasPrefix(part, "tmp_")
	})
}

// linksOf is how many names a file has. A pack that repositories share is on the disk once,
// and anybody's repository may be one of them.
func linksOf(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return max(1, int64(st.Nlink))
	}
	return 1
}

// weighPulls finds out how many bytes only pull requests need, if that may matter: if an owner has more than half
// of its limit. Strangers can make that fail. Then the last result stays, and it is tried again after quotaAge.
func (q *diskQuota) weighPulls(ctx context.Context, u *usage, ref graspsync.RepoRef, pullBytes func(owner graspsync.PubKey) int64) {
	q.mu.Lock()
	due := q.owner > 0 && u.bytes+u.pending > q.owner/2 &&
		(time.Since(u.weighed) >= quotaAge || !u.failed && u.weighedBytes != u.bytes)
	if due {
		u.weighed, u.weighedBytes = time.Now(), u.bytes
	}
	q.mu.Unlock()
	if !due {
		return
	}
	counted := pullBytes(ref.Owner)
	pulls, err := q.weighAll(ctx, ref.Owner.String())
	if err != nil && ctx.Err() == nil {
		q.failures.warn(ref, fmt.Errorf("measuring pull requests: %w", err))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if u.failed = err != nil; err == nil {
		u.pulls, u.known = min(max(pulls, counted), u.bytes), true
	}
}

// weighAll weighs the pull requests of all repositories of an owner.
func (q *diskQuota) weighAll(ctx context.Context, folder string) (theirs int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, weighMost)
	defer cancel()
	entries, err := fs.ReadDir(q.layout.root.FS(), folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for _, e := range entries {
		at := path.Join(folder, e.Name())
		if _, err := q.layout.root.Stat(path.Join(at, "HEAD")); err != nil {
			continue // it is none, or has gone
		}
		n, err := q.weigh(ctx, filepath.Join(q.layout.dir, filepath.FromSlash(at)))
		if err != nil {
			return 0, err
		}
		theirs += n
	}
	return theirs, nil
}

// walk measures all owners. If one of them can't be measured, all are measured again after quotaAge.
func (q *diskQuota) walk(ctx context.Context) {
	defer q.walking.Store(false)
	folders, err := q.owners()
	q.mu.Lock()
	for folder := range q.usages {
		folders[folder] = struct{}{} // it may have gone
	}
	q.mu.Unlock()
	for folder := range folders {
		if ctx.Err() != nil {
			return
		}
		err = errors.Join(err, q.refresh(ctx, folder, func(context.Context, *usage) {}))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.walked = time.Now(); err != nil {
		q.walked = q.walked.Add(quotaAge - quotaPeriod)
		q.failures.log.Warn("repositories could not be measured", "error", graspsync.Printable(err.Error()))
	}
}

// owners returns the folders of those who have something, also out of service.
func (q *diskQuota) owners() (map[string]struct{}, error) {
	here, err := fs.ReadDir(q.layout.root.FS(), ".")
	out, outErr := fs.ReadDir(q.layout.root.FS(), departed)
	folders := make(map[string]struct{})
	for _, f := range append(here, out...) {
		if key, err := hex.DecodeString(f.Name()); err == nil && len(key) == len(graspsync.PubKey{}) {
			folders[f.Name()] = struct{}{}
		}
	}
	return folders, errors.Join(err, outErr)
}
