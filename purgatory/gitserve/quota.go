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
)

// diskQuota limits the size of the repositories of one owner, and of all repositories. It measures
// an owner for each push and fetch, and all owners every quotaPeriod. Concurrent pushes may exceed a
// limit, because data counts only after it was granted or measured.
type diskQuota struct {
	// set by Open, read-only
	layout     *layout
	owner, all int64 // limits in bytes; zero: no limit
	// weigh returns the size of objects that only pull requests need, in bytes.
	weigh func(ctx context.Context, dir string) (int64, error)
	tasks *tasks
	log   *slog.Logger

	mu sync.Mutex
	// guarded by mu
	usages     map[string]*usage // by folder of the owner
	sum        int64             // of all owners
	measuredAt time.Time         // start of the last measurement of all owners
}

// usage is the size of the repositories of an owner: the last measurement and bytes granted since.
type usage struct {
	bytes int64
	// pulls is the part of pull requests at the time weighed. It has a limit of its own, because
	// anyone can create pull requests.
	pulls   int64
	weighed time.Time
}

const (
	quotaAge    = time.Minute // between measurements of pulls, which strangers can make slow
	quotaPeriod = time.Hour
	weighMost   = 20 * time.Second // for the pull requests of one owner
)

const (
	errOwnerFull fullError = "the repositories of this owner take up all that they may on this server"
	errPullsFull fullError = "pull requests for the repositories of this owner take up all that they may on this server"
	errFull      fullError = "the repositories of this server take up all that they may"
	errDisk      fullError = refusedDisk // less than MinFreeDisk of Config would remain
)

// fullError is a message to clients about a full disk.
type fullError string

func (e fullError) Error() string { return string(e) }

// reserve counts bytes that are about to be stored, or returns a fullError. pulls is true if only
// pull requests need them. pullBytes returns the size of pull requests of other authors in the
// repositories of an owner, as far as known.
func (q *diskQuota) reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64, pullBytes func(owner graspsync.PubKey) int64) error {
	if q.owner == 0 && q.all == 0 {
		return nil
	}
	bytes = max(bytes, 1) // zero asks whether there is any room
	owner := ref.Owner.String()
	u, err := q.measure(ctx, owner)
	if err != nil {
		return fmt.Errorf("measuring repositories: %w", err)
	}
	if q.owner > 0 && u.bytes+bytes > q.owner {
		u = q.weighed(ctx, owner, u)
		theirs := min(u.bytes, max(u.pulls, pullBytes(ref.Owner)))
		used, full := u.bytes-theirs, errOwnerFull
		if pulls {
			used, full = theirs, errPullsFull
		}
		if used+bytes > q.owner {
			return full
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all > 0 && time.Since(q.measuredAt) >= quotaPeriod {
		q.measuredAt = time.Now()
		q.tasks.beside(q.measureAll)
	}
	if q.all > 0 && q.sum+bytes > q.all {
		return errFull
	}
	q.set(owner, func(u *usage) { u.bytes += bytes })
	return nil
}

// set changes the usage of an owner. The caller holds mu.
func (q *diskQuota) set(owner string, change func(*usage)) usage {
	u := q.usages[owner]
	if u == nil {
		u = &usage{}
		q.usages[owner] = u
	}
	q.sum -= u.bytes
	change(u)
	if q.sum += u.bytes; u.bytes == 0 {
		delete(q.usages, owner)
	}
	return *u
}

// measure measures the size of the repositories of an owner, including retired repositories. A file
// with n hard links counts 1/n, because n repositories share it. Temporary files and quarantine
// folders are not counted.
func (q *diskQuota) measure(ctx context.Context, owner string) (usage, error) {
	var bytes int64
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
	root := q.layout.root.FS()
	if err := errors.Join(fs.WalkDir(root, owner, add), fs.WalkDir(root, path.Join(departed, owner), add)); err != nil {
		return usage{}, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.set(owner, func(u *usage) { u.bytes = bytes }), nil
}

// weighed returns the usage of an owner with a measurement of pulls. If git cannot measure them,
// pulls is the limit, which keeps further pull requests out and the owner's pushes possible.
func (q *diskQuota) weighed(ctx context.Context, owner string, u usage) usage {
	if time.Since(u.weighed) < quotaAge {
		return u
	}
	pulls, err := q.weighAll(ctx, owner)
	if err != nil {
		pulls = q.owner
		q.log.Warn("measuring pull requests failed", "owner", owner, "error", graspsync.Printable(err.Error()))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.set(owner, func(now *usage) { now.pulls, now.weighed = pulls, time.Now() })
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
			_, merr := q.measure(ctx, owner)
			err = errors.Join(err, merr)
		}
	}
	if err != nil && ctx.Err() == nil {
		q.mu.Lock()
		q.measuredAt = time.Now().Add(quotaAge - quotaPeriod)
		q.mu.Unlock()
		q.log.Warn("measuring repositories failed", "error", graspsync.Printable(err.Error()))
	}
}
