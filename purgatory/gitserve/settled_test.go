package gitserve_test

import (
	"context"

	"github.com/graspsync/graspsync"
)

// settling is an Authority with waiting events.
type settling struct {
	*authority
	wait func(context.Context) error
}

// AwaitServed implements [Authority].
func (s settling) AwaitServed(ctx context.Context, _ graspsync.RepoRef) error { return s.wait(ctx) }
