package purgatory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// repository is a locked repository during a release.
type repository struct {
	*refplan.Repository

	dir      string
	unlock   func()
	watch    *stopwatch.Watch            // of the release, which may cover other repositories
	until    time.Duration               // end of the time budget on watch
	moves    int                         // maximum number of refs in one transaction; 0: any number
	beyond   map[graspsync.EventID]int64 // bytes that a pull request needs beyond branches and tags
	gained   bool                        // objects were imported in this release
	occupied bool                        // a repository that may have objects was locked by others
	more     bool                        // objects may get room after these have refs
	failed   error                       // failure of the release, which is repeated
	trouble  error                       // failure of a part of the release, which is repeated
}

func endReasonOf(f refplan.EndReason) EndReason {
	switch f {
	case refplan.Expired:
		return Expired
	case refplan.Replaced:
		return Replaced
	case refplan.Deleted:
		return Deleted
	}
	return NotStored
}

// left returns the rest of the time budget.
func (r *repository) left() time.Duration { return r.until - r.watch.Worked() }

// work calls do with a limit of most for its work. The error wraps errLong if the time was up, and
// gitops.ErrBusy if all git slots were busy for too long, which is not the fault of the repository.
func (r *repository) work(ctx context.Context, most time.Duration, do func(ctx context.Context) error) error {
	working, cancel := r.watch.Limit(ctx, most, errLong)
	defer cancel()
	err := do(working)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, reason := range []error{gitops.ErrBusy, errLong} {
		if errors.Is(err, reason) || errors.Is(context.Cause(working), reason) {
			return fmt.Errorf("%w: %s", reason, graspsync.Printable(err.Error()))
		}
	}
	return err
}

func setOf[K comparable](ids []K) map[K]struct{} {
	out := make(map[K]struct{}, len(ids))
	for _, id := range ids {
		out[id] = struct{}{}
	}
	return out
}
