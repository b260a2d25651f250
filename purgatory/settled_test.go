package purgatory_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// WaitServed waits until the events of a push are served.
func TestSettledWhenEventsAreServed(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		ref := repoOf(alice)
		require.NoError(t, w.p.WaitServed(t.Context(), ref), "nothing is to be seen to")
		ann, state := announce(alice, now()-10), says(alice, now(), "main", 1)
		require.Equal(t, purgatory.Held, w.submit(ann, true))
		require.Equal(t, purgatory.Held, w.submit(state, true))
		wait(time.Second)
		w.pushed(ref, branch("main"), object(1))
		require.NoError(t, w.p.WaitServed(t.Context(), ref))
		require.True(t, w.relay.has(ann))
		require.True(t, w.relay.has(state))
	})
}

// WaitServed does not wait for a relay that fails to store an event.
func TestSettledThoughARelayStoresNothing(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		ref := repoOf(alice)
		w.relay.put(announce(alice, now()-10))
		w.git.Put(ref)
		state := says(alice, now(), "main", 1)
		w.held(state)
		wait(time.Second)
		w.relay.mu.Lock()
		w.relay.fail = errors.New("the disk is full")
		w.relay.mu.Unlock()
		w.pushed(ref, branch("main"), object(1))
		began := time.Now()
		require.NoError(t, w.p.WaitServed(t.Context(), ref))
		require.Less(t, time.Since(began), 10*time.Second)
		require.False(t, w.relay.has(state))
		w.relay.mu.Lock()
		w.relay.fail = nil
		w.relay.mu.Unlock()
		wait(time.Hour)
		require.True(t, w.relay.has(state))
	})
}

// WaitServed does not wait for a relay that fails reads.
func TestSettledThoughARelayAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		host := &muteRelay{relay: w.relay}
		w.host = host
		w.start()
		ref := repoOf(alice)
		w.relay.put(announce(alice, now()-10))
		w.git.Put(ref)
		state := says(alice, now(), "main", 1)
		w.held(state)
		wait(time.Second)
		host.mute.Store(true)
		w.pushed(ref, branch("main"), object(1))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it may have been released before the call
		defer cancel()
		require.NoError(t, w.p.WaitServed(ctx, ref))
		host.mute.Store(false)
		wait(time.Hour)
		require.True(t, w.relay.has(state))
		w.stop()
	})
}

// muteRelay is a relay that fails to return announcements for a while.
type muteRelay struct {
	*relay
	mute atomic.Bool
}

func (r *muteRelay) Events(ctx context.Context, f nostrFilter) iter.Seq2[graspsync.Event, error] {
	if r.mute.Load() && asks(f) == "announcements" {
		return func(yield func(graspsync.Event, error) bool) {
			yield(graspsync.Event{}, errors.New("the database is locked"))
		}
	}
	return r.relay.Events(ctx, f)
}

// A canceled WaitServed is removed.
func TestSettledEndsWithItsContext(t *testing.T) {
	w := newWorld(t, purgatory.Config{})
	p, err := purgatory.Open(t.Context(), w.relay, w.git, w.git, w.state, w.cfg) // without Run
	require.NoError(t, err)
	p.Pushed(t.Context(), repoOf(alice), []nip34.RefName{branch("main")})
	gone := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	require.ErrorIs(t, p.WaitServed(ctx, repoOf(alice)), gone)
}

// The default branch of an empty repository is that of the newest held state of a maintainer.
func TestUnbornBranch(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		ref := repoOf(alice)
		head := func() string {
			wait(time.Second)
			dir, unlock, err := w.git.Lock(t.Context(), ref)
			require.NoError(t, err)
			defer unlock()
			refs, err := w.git.Refs(t.Context(), dir)
			require.NoError(t, err)
			return refs.Head.String()
		}
		state := func(k *relaytest.Key, at nostrTime, head string, branches ...string) *nostrEvent {
			refs := make(map[string]string)
			for _, name := range branches {
				refs["refs/heads/"+name] = object(1).String()
			}
			return k.State(at, ref.Identifier, refs, head)
		}
		require.Equal(t, purgatory.Held, w.submit(announce(alice, now()-100), true))
		was := head()
		w.held(state(bob, now(), "bobs", "bobs"))
		require.Equal(t, was, head(), "he has no say")
		w.held(state(alice, now()-50, "develop", "develop"))
		require.Equal(t, "refs/heads/develop", head())
		w.held(state(alice, now()-40, "nowhere", "develop", "next"))
		require.Equal(t, "refs/heads/develop", head(), "there will be no such branch")
		w.held(state(alice, now()-30, "next", "develop", "next"))
		require.Equal(t, "refs/heads/next", head())
		w.pushed(ref, branch("next"), object(1))
		w.pushed(ref, branch("develop"), object(1))
		require.Equal(t, "refs/heads/next", head())
		w.held(state(alice, now()-20, "later", "later"))
		require.Equal(t, "refs/heads/later", head(), "its data is here")
	})
}
