package gitserve_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// settling is an Authority with waiting events.
type settling struct {
	*authority
	wait func(context.Context) error
}

// AwaitServed implements [Authority].
func (s settling) AwaitServed(ctx context.Context, _ graspsync.RepoRef) error { return s.wait(ctx) }

// A push was reported as done before its events were served, so a client that read immediately
// found the old events.
func TestPushIsDoneWhenItsEventsAreServed(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	asked, served := make(chan struct{}), make(chan struct{})
	r.authorize(settling{r.authority, func(ctx context.Context) error {
		close(asked)
		select {
		case <-served:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	r.says(map[string]string{"refs/heads/main": r.tip})
	pushed := make(chan error, 1)
	go func() {
		_, err := try(t, r.work, "push", "-q", r.repo(), "main")
		pushed <- err
	}()
	<-asked
	require.Contains(t, r.has(t), r.tip, "nobody waits for the lock meanwhile")
	select {
	case <-pushed:
		t.Fatal("the push has ended")
	default:
	}
	close(served)
	require.NoError(t, <-pushed)
}
