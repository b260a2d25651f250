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

// repository is one repository while it is locked, and what a look at it has come to.
type repository struct {
	*refplan.Repository

	dir      string
	unlock   func()
	watch    *stopwatch.Watch // of the look, which may be at others as well
	until    time.Duration    // of watch: when its share of time is over
	moves    int              // refs that may be moved at once; 0: any number
	gained   bool             // objects came to it in this look
	occupied bool             // somebody was at another repository, which may have some
	more     bool             // some did not, for which there may be room when these have refs
	failed   error            // it could not be dealt with; it is looked at again
	trouble  error            // something else went wrong; it is looked at again
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

// left is what is left of a look's share of time.
func (r *repository) left() time.Duration { return r.until - r.watch.Worked() }

// work has git do something that may take as long as whoever made the objects likes. The
// error wraps errLong if it took more time than it may, and ErrCrowded if others had all
// places for too long: that says nothing about the repository.
func (r *repository) work(ctx context.Context, most time.Duration, do func(ctx context.Context) error) error {
	working, cancel := r.watch.Limit(ctx, most, errLong)
	defer cancel()
	err := do(working)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, reason := range []error{ErrCrowded, errLong} {
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
