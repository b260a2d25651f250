package gitserve

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// settling is an authority that has something to see to after a push.
type settling struct {
	*authority
	wait func(ctx context.Context) error
}

func (s settling) AwaitServed(ctx context.Context, _ graspsync.RepoRef) error { return s.wait(ctx) }

// However an answer comes, its end is what is kept back, and nothing of it is lost.
func TestEndOfAnAnswerIsKeptBack(t *testing.T) {
	const text = "000eunpack ok\n0000"
	for size := 1; size <= len(text); size++ {
		to := httptest.NewRecorder()
		answer := &held{ResponseWriter: to}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			done, err := answer.Write([]byte(rest[:n]))
			require.NoError(t, err)
			require.Equal(t, n, done)
			rest = rest[n:]
			require.LessOrEqual(t, len(text)-len(rest)-to.Body.Len(), len(flushPacket))
		}
		require.Equal(t, strings.TrimSuffix(text, flushPacket), to.Body.String())
		answer.close()
		require.Equal(t, text, to.Body.String())
		answer.close()
		require.Equal(t, text, to.Body.String())
	}
	to := httptest.NewRecorder()
	(&held{ResponseWriter: to}).close()
	require.Empty(t, to.Body.String())
}

// Whoever pushed heard that it was done before its events were served: who read at once
// found the old ones.
func TestPushIsDoneWhenItsEventsAreServed(t *testing.T) {
	r := newRig(t, Config{})
	asked, served := make(chan struct{}), make(chan struct{})
	r.git.auth = settling{r.authority, func(ctx context.Context) error {
		close(asked)
		select {
		case <-served:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
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

// Who waits for the events of a push that is done keeps nobody else from pushing, however many
// wait; where too many do the answer comes at once.
func TestWaitForEventsTakesNoPlace(t *testing.T) {
	r := newRig(t, Config{fixed: numbers{MaxReaders: 4, Wait: time.Second, MaxPerClient: 4}})
	asked, served := make(chan struct{}, 4), make(chan struct{})
	r.git.auth = settling{r.authority, func(ctx context.Context) error {
		asked <- struct{}{}
		<-served
		return nil
	}}
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
	here, kept, _ := r.git.pushes.visits.count()
	require.Zero(t, here)
	require.Zero(t, kept)
	taken(t, r.git.settling, 3)
	git(t, r.work, "push", "-q", r.repo(), "main:d")
	require.Contains(t, r.has(t), "refs/heads/d")
	require.Empty(t, asked)
	close(served)
	for _, pushed := range pushes {
		require.NoError(t, <-pushed)
	}
	taken(t, r.git.settling, 0)
}

// Events that can't be stored keep nobody waiting for ever, and who waits hears that we are
// there.
func TestWaitForEventsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := &Handler{failures: &failures{log: slog.New(slog.NewTextHandler(&log, nil))}, settling: newPlaces(2, 1, 1)}
		v := &visit{leave: func() {}}
		var said bytes.Buffer
		alive := sayAlive(&said, request{report: true, sideband: true})
		settled := func(a Authority) time.Duration {
			said.Reset()
			log.Reset()
			began := time.Now()
			h.auth = a
			h.settled(t.Context(), v, owner.Ref("x"), alive)
			return time.Since(began)
		}
		require.Zero(t, settled(&authority{}), "nothing waits")
		require.Equal(t, 12*time.Second, settled(settling{wait: func(context.Context) error { time.Sleep(12 * time.Second); return nil }}))
		require.Equal(t, stillHere+stillHere, said.String())
		require.Empty(t, log.String())
		require.Equal(t, 30*time.Second, settled(settling{wait: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}))
		require.NotEmpty(t, said.String())
		require.Contains(t, log.String(), "before its events are served")
		require.Zero(t, settled(settling{wait: func(context.Context) error { return errors.New("no") }}))

		sayAlive(&said, request{report: true})() // it would take that for its report
		sayAlive(&said, request{sideband: true})()
		require.Empty(t, said.String())
	})
}
