package gitserve_test

import (
	"context"
	"testing"
	"time"

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

// Completed pushes that wait for their events block no other pushes. If too many wait, the answer
// is immediate.
func TestWaitForEventsTakesNoPlace(t *testing.T) {
	r := newRig(t, gitserve.Config{}.With(gitserve.Fixed{MaxReaders: 3, Wait: time.Second}))
	asked, served := make(chan struct{}, 4), make(chan struct{})
	r.authorize(settling{r.authority, func(ctx context.Context) error {
		asked <- struct{}{}
		<-served
		return nil
	}})
	r.says(map[string]string{"refs/heads/a": r.tip, "refs/heads/b": r.tip, "refs/heads/c": r.tip, "refs/heads/d": r.tip})
	var pushes []chan error
	for _, branch := range []string{"a", "b", "c"} {
		pushed := make(chan error, 1)
		pushes = append(pushes, pushed)
		go func() {
			_, err := try(t, r.work, "push", "-q", r.repo(), "main:"+branch)
			pushed <- err
		}()
		<-asked
	}
	r.taken(t, "requests", "push", 0)
	git(t, r.work, "push", "-q", r.repo(), "main:d")
	require.Contains(t, r.has(t), "refs/heads/d")
	require.Empty(t, asked)
	close(served)
	for _, pushed := range pushes {
		require.NoError(t, <-pushed)
	}
}
