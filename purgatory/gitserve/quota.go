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
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
)

// diskQuota limits the size of the repositories of one owner, and of all repositories. Before a
// push it measures the folder of the owner, if the last measurement is older than quotaAge or a
// push ended since. It measures all folders every quotaPeriod. Pending pushes and fetches are
// added.
type diskQuota struct {
	// set by Open, read-only
	layout     *layout
	owner, all int64 // limits in bytes; zero: no limit
	// weigh returns the size of objects that only pull requests need, in bytes.
	weigh func(ctx context.Context, dir string) (int64, error)
	tasks *tasks
	log   *slog.Logger

	measuring *keyed.Locks[string] // by folder of the owner

	mu sync.Mutex
	// guarded by mu
	usages     map[string]*usage // by folder of the owner
	sum        int64             // of all owners, with pending bytes
	measuredAt time.Time         // start of the last measurement of all owners
}

type usage struct {
	// pulls is the part of pull requests in bytes. It has a limit of its own, because anyone can
	// create pull requests. It is unknown until git has measured it.
	bytes, pulls          int64
	pending, pendingPulls int64
	known                 bool
	measured, weighed     time.Time // zero: must be measured again
}

// own returns the bytes that count for the owner. most is the limit.
func (u *usage) own(most int64) int64 {
	pulls := u.pulls
	if !u.known && u.bytes > most/2 { // assume that pull requests use their whole limit
		pulls = max(pulls, min(u.bytes, most))
	}
	return u.bytes + u.pending - u.pendingPulls - pulls
}

const (
	quotaAge    = time.Minute
	quotaPeriod = time.Hour
	weighMost   = 20 * time.Second // for the pull requests of one owner
)

// fullError is a message to clients about a full disk.
type fullError string

func (e fullError) Error() string { return string(e) }

const (
	errOwnerFull fullError = "the repositories of this owner take up all that they may on this server"
	errPullsFull fullError = "pull requests for the repositories of this owner take up all that they may on this server"
	errFull      fullError = "the repositories of this server take up all that they may"
	errDisk      fullError = refusedDisk // less than MinFreeDisk of Config would remain
)

// reservation is disk space of a running push or fetch. A nil reservation is unlimited.
type reservation struct {
	q     *diskQuota
	owner string
	pulls bool // only for pull requests
	bytes int64
}

// begin returns an empty reservation, or an error if there is no room. The caller must call end.
// pullBytes returns the size of pull requests of other authors in the repositories of an owner.
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

// charge sets the size of a reservation. The error reports a full quota.
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

// add sets the size of a reservation. The caller holds mu of the quota.
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

// end releases a reservation. arrived reports whether the data is stored. The owner is measured before the next push.
func (r *reservation) end(arrived bool) {
	if r == nil || r.bytes == 0 {
		return
	}
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	bytes := r.bytes
	u := r.add(0)
	if u.measured = (time.Time{}); arrived && r.pulls {
		u.pulls += bytes // until they are measured
	}
}

// usage returns the usage of an owner. The caller holds mu.
func (q *diskQuota) usage(owner string) *usage {
	u := q.usages[owner]
	if u == nil {
		u = &usage{}
		q.usages[owner] = u
	}
	return u
}

// measure measures an owner unless the last measurement is valid. If the owner uses more than half
// of the limit, git also measures the pull requests, at most once in quotaAge, because pull
// requests of strangers can make that slow or fail.
func (q *diskQuota) measure(ctx context.Context, owner string, pullBytes func() int64) error {
	unlock, err := q.measuring.Lock(ctx, owner)
	if err != nil {
		return err
	}
	defer unlock()
	q.mu.Lock()
	u := q.usage(owner)
	valid := time.Since(u.measured) < quotaAge
	u.measured = time.Now() // a push that ends later resets it
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
			q.log.Warn("measuring pull requests failed", "owner", owner, "error", graspsync.Printable(err.Error()))
		}
	}
	if u.pulls = min(u.pulls, bytes); bytes == 0 && u.pending == 0 {
		delete(q.usages, owner)
	}
	return nil
}

// size returns the size of the repositories of an owner, including retired repositories. A file
// with n hard links counts 1/n, because n repositories share it. Temporary files and quarantine
// folders are not counted.
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
				bytes += info.Size() / disk.Links(info)
			}
		}
		return ifExists(err) // it may be removed concurrently
	}
	err = errors.Join(fs.WalkDir(q.layout.root.FS(), owner, add), fs.WalkDir(q.layout.root.FS(), path.Join(departed, owner), add))
	return bytes, err
}

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

// measureAll measures all owners. After an error it is due again after quotaAge.
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
		owners[owner] = struct{}{} // includes owners whose folders are gone
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
		q.log.Warn("measuring repositories failed", "error", graspsync.Printable(err.Error()))
	}
}
