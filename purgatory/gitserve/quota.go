package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
)

// diskQuota bounds the bytes of the repositories of one owner, and of all. It measures the folder of an owner
// before a push if the measurement is older than quotaAge or if a push has ended since, and the folders of all
// owners every quotaPeriod. The bytes of pushes and fetches under way are added.
type diskQuota struct {
	// set by Open, read-only
	layout     *layout
	owner, all int64 // bytes; zero: no limit
	// weigh returns the number of bytes that only pull requests need in a repository.
	weigh func(ctx context.Context, dir string) (int64, error)
	tasks *tasks
	log   *slog.Logger

	measuring *keyed.Locks[string] // by the folder of the owner

	mu sync.Mutex
	// guarded by mu
	usages     map[string]*usage // by the folder of the owner
	sum        int64             // of all owners, with pending bytes
	measuredAt time.Time         // when the measurement of all owners began
}

// usage is the disk usage of one owner.
type usage struct {
	// Anybody can write pull requests, so they have a room of the same size for themselves. pulls is their
	// part of bytes. It is unknown until git has found it out once.
	bytes, pulls          int64
	pending, pendingPulls int64
	known                 bool
	measured, weighed     time.Time // zero if it is to be measured again
}

// own returns the bytes that count for the owner, of at most the given number.
func (u *usage) own(most int64) int64 {
	pulls := u.pulls
	if !u.known && u.bytes > most/2 { // pull requests may have all of their room
		pulls = max(pulls, min(u.bytes, most))
	}
	return u.bytes + u.pending - u.pendingPulls - pulls
}

const (
	quotaAge    = time.Minute
	quotaPeriod = time.Hour
	weighMost   = 20 * time.Second // for the pull requests of one owner
)

// fullError is the reason why there is no room on the disk, as clients are told.
type fullError string

// Error returns the reason.
func (e fullError) Error() string { return string(e) }

const (
	errOwnerFull fullError = "the repositories of this owner take up all that they may on this server"
	errPullsFull fullError = "pull requests for the repositories of this owner take up all that they may on this server"
	errFull      fullError = "the repositories of this server take up all that they may"
	errDisk      fullError = refusedDisk // less than MinFreeDisk of Config would be free
)

// reservation is the room of a push or fetch under way. A nil one is unlimited.
type reservation struct {
	q     *diskQuota
	owner string
	pulls bool // only for pull requests
	bytes int64
}

// begin returns a reservation without bytes, or the reason why there is no room. The caller must end it.
// pullBytes returns how many bytes pull requests of strangers take up in the repositories of an owner.
func (q *diskQuota) begin(ctx context.Context, ref graspsync.RepoRef, pulls bool, pullBytes func(owner graspsync.PubKey) int64) (*reservation, error) {
	if q.owner == 0 && q.all == 0 {
		return nil, nil
	}
	r := &reservation{q: q, owner: ref.Owner.String(), pulls: pulls}
	if err := q.measure(ctx, r.owner, func() int64 { return pullBytes(ref.Owner) }); err != nil {
		return nil, fmt.Errorf("measuring repositories: %w", err)
	}
	q.mu.Lock()
	due := q.all > 0 && time.Since(q.measuredAt) >= quotaPeriod
	if due {
		q.measuredAt = time.Now()
	}
	q.mu.Unlock()
	if due {
		q.tasks.beside(q.measureAll)
	}
	return r, r.charge(0)
}

// charge sets the bytes of a reservation. The error is the reason why there is no room for them.
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
	case q.all > 0 && q.sum >= q.all:
		return errFull
	}
	return nil
}

// add is called with mu of the quota held.
func (r *reservation) add(bytes int64) *usage {
	u, more := r.q.usage(r.owner), bytes-r.bytes
	r.bytes = bytes
	r.q.sum += more
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
	bytes := r.bytes
	u := r.add(0)
	if u.measured = (time.Time{}); r.pulls {
		u.pulls += bytes // until they are weighed
	}
}

// usage is called with mu held.
func (q *diskQuota) usage(owner string) *usage {
	u := q.usages[owner]
	if u == nil {
		u = &usage{}
		q.usages[owner] = u
	}
	return u
}

// measure measures an owner unless the last measurement is valid. If the owner has more than half of its limit,
// git weighs the pull requests, at most once in quotaAge, because strangers can make that slow and fail.
func (q *diskQuota) measure(ctx context.Context, owner string, pullBytes func() int64) error {
	unlock, err := q.measuring.Lock(ctx, owner)
	if err != nil {
		return err
	}
	defer unlock()
	q.mu.Lock()
	u := q.usage(owner)
	valid := time.Since(u.measured) < quotaAge
	u.measured = time.Now() // a push that ends from now on makes it invalid
	q.mu.Unlock()
	if valid {
		return nil
	}
	bytes, err := q.size(ctx, owner)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		u.measured = time.Time{}
		return err
	}
	q.sum += bytes - u.bytes
	u.bytes = bytes
	if pullBytes != nil && q.owner > 0 && bytes > q.owner/2 && time.Since(u.weighed) >= quotaAge {
		u.weighed = time.Now()
		q.mu.Unlock()
		pulls, err := q.weighAll(ctx, owner)
		counted := pullBytes()
		q.mu.Lock()
		if err == nil {
			u.pulls, u.known = max(pulls, counted), true
		} else if ctx.Err() == nil {
			q.log.Warn("pull requests could not be measured", "owner", owner, "error", graspsync.Printable(err.Error()))
		}
	}
	if u.pulls = min(u.pulls, bytes); bytes == 0 && u.pending == 0 {
		delete(q.usages, owner)
	}
	return nil
}

// size returns the bytes of the repositories of an owner, also of those out of service. A file of n links, which
// n repositories share, counts for one n-th. Files that are being fetched or written are no part of a repository yet.
func (q *diskQuota) size(ctx context.Context, owner string) (bytes int64, err error) {
	add := func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if base := path.Base(name); err == nil && d.IsDir() && strings.HasPrefix(base, barerepo.QuarantinePrefix) {
			return fs.SkipDir
		} else if err == nil && d.Type().IsRegular() && !strings.HasPrefix(base, "tmp_") {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				bytes += info.Size() / linksOf(info)
			}
		}
		return ifExists(err) // it may go meanwhile
	}
	err = errors.Join(fs.WalkDir(q.layout.root.FS(), owner, add), fs.WalkDir(q.layout.root.FS(), path.Join(departed, owner), add))
	return bytes, err
}

func linksOf(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return max(1, int64(st.Nlink))
	}
	return 1
}

// weighAll weighs the pull requests of all repositories of an owner.
func (q *diskQuota) weighAll(ctx context.Context, owner string) (bytes int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, weighMost)
	defer cancel()
	entries, err := fs.ReadDir(q.layout.root.FS(), owner)
	if ifExists(err) != nil {
		return 0, err
	}
	for _, e := range entries {
		at := path.Join(owner, e.Name())
		if there, err := q.layout.isThere(at); err != nil || !there {
			continue
		}
		n, err := q.weigh(ctx, filepath.Join(q.layout.dir, filepath.FromSlash(at)))
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// measureAll measures all owners. If one of them can't be measured, all are measured again after quotaAge.
func (q *diskQuota) measureAll(ctx context.Context) {
	here, err := fs.ReadDir(q.layout.root.FS(), ".")
	out, outErr := fs.ReadDir(q.layout.root.FS(), departed)
	err = errors.Join(err, outErr)
	owners := make(map[string]struct{})
	for _, f := range append(here, out...) {
		if _, err := graspsync.ParsePubKey(f.Name()); err == nil {
			owners[f.Name()] = struct{}{}
		}
	}
	q.mu.Lock()
	for owner := range q.usages {
		owners[owner] = struct{}{} // it may have gone
	}
	q.mu.Unlock()
	for owner := range owners {
		if ctx.Err() == nil {
			err = errors.Join(err, q.measure(ctx, owner, nil))
		}
	}
	if err != nil && ctx.Err() == nil {
		q.mu.Lock()
		q.measuredAt = time.Now().Add(quotaAge - quotaPeriod)
		q.mu.Unlock()
		q.log.Warn("repositories could not be measured", "error", graspsync.Printable(err.Error()))
	}
}
