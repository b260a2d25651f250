package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// diskQuota limits the size of the repositories of one owner, which it measures for each push and
// fetch, and of all repositories, which it measures every quotaPeriod. Concurrent pushes may exceed
// the limit of an owner.
type diskQuota struct {
	// set by Open, read-only
	layout     *layout
	owner, all int64 // limits in bytes; zero: no limit
	tasks      *tasks
	log        *slog.Logger

	mu sync.Mutex
	// guarded by mu
	sum        int64     // of all repositories, and granted since
	measuredAt time.Time // start of the last measurement of all repositories
}

const (
	quotaPeriod = time.Hour   // between measurements of all repositories
	quotaAge    = time.Minute // the same if they are full
	ownersShare = 4           // 1/4 of the limit of an owner is closed to pull requests, which anyone can make
)

var (
	errOwnerFull = full("the repositories of this owner take up all that they may on this server")
	errPullsFull = full("pull requests for the repositories of this owner take up all that they may on this server")
	errFull      = full("the repositories of this server take up all that they may")
	errDisk      = full(refusedDisk) // less than MinFreeDisk of Config would remain
)

func full(text string) *refusal { return &refusal{status: http.StatusInsufficientStorage, text: text} }

// reserve counts bytes that are about to be stored, or returns a refusal. pulls is true if only
// pull requests need them.
func (q *diskQuota) reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64) error {
	bytes = max(bytes, 1) // zero asks whether there is any room
	if q.owner > 0 {
		owner := ref.Owner.String()
		used, err := q.size(ctx, owner, path.Join(departed, owner))
		switch {
		case err != nil:
			return fmt.Errorf("measuring repositories: %w", err)
		case used+bytes > q.owner:
			return errOwnerFull
		case pulls && used+bytes > q.owner-q.owner/ownersShare:
			return errPullsFull
		}
	}
	if q.all == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	isFull := q.sum+bytes > q.all
	if age := time.Since(q.measuredAt); age >= quotaPeriod || isFull && age >= quotaAge {
		before := q.sum
		q.measuredAt = time.Now()
		q.tasks.beside(func(ctx context.Context) { q.measureAll(ctx, before) })
	}
	if isFull {
		return errFull
	}
	q.sum += bytes
	return nil
}

// size returns the size of folders without temporary and staged data. A file with n hard links
// counts 1/n, because n repositories share it.
func (q *diskQuota) size(ctx context.Context, folders ...string) (bytes int64, err error) {
	for _, folder := range folders {
		err = errors.Join(err, fs.WalkDir(q.layout.root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			base := path.Base(name)
			switch {
			case err == nil && d.IsDir() && (strings.HasPrefix(base, barerepo.QuarantinePrefix) || name == stagedDir || name == incoming):
				return fs.SkipDir
			case err == nil && d.Type().IsRegular() && !strings.HasPrefix(base, "tmp_"):
				var info fs.FileInfo
				if info, err = d.Info(); err == nil {
					bytes += info.Size() / disk.Links(info)
				}
			}
			return ifExists(err) // it may be removed concurrently
		}))
	}
	return bytes, err
}

func (q *diskQuota) measureAll(ctx context.Context, before int64) {
	sum, err := q.size(ctx, ".")
	if err != nil && ctx.Err() == nil {
		q.log.Warn("measuring repositories failed", "error", graspsync.Printable(err.Error()))
	}
	if err == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.sum = max(sum, q.sum-before) // the walk may have missed what was granted meanwhile
	}
}
