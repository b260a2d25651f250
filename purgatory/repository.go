package purgatory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// repository is a locked repository during a release.
type repository struct {
	*refplan.Repository

	dir      string
	unlock   func()
	watch    *stopwatch.Watch // of the release, which may use other repositories as well
	until    time.Duration    // end of the share of time, on watch
	moves    int              // maximum number of refs in one transaction; 0: any number
	gained   bool             // objects were imported in this release
	occupied bool             // another repository that may have objects was locked
	more     bool             // objects had no room yet, and may have some when these have refs
	failed   error            // the release failed, and is repeated
	trouble  error            // a part of the release failed, which is repeated
}

// endReasonOf converts the reason for which a hold ended.
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

// left returns the rest of the share of time.
func (r *repository) left() time.Duration { return r.until - r.watch.Worked() }

// work runs git for at most so long. The error wraps errLong if the time was up, and ErrGitBusy if
// all git slots were busy for too long, which says nothing about the repository.
func (r *repository) work(ctx context.Context, most time.Duration, do func(ctx context.Context) error) error {
	working, cancel := r.watch.Limit(ctx, most, errLong)
	defer cancel()
	err := do(working)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, reason := range []error{ErrGitBusy, errLong} {
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
