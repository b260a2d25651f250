package purgatory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// askedRelay counts the calls of Deleted.
type askedRelay struct {
	*relay

	mu    sync.Mutex
	asked map[graspsync.EventID]int
	fails func() error
}

func (r *askedRelay) Deleted(ctx context.Context, ev graspsync.Event) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[ev.ID]++
	if r.fails != nil {
		if err := r.fails(); err != nil {
			return false, err
		}
	}
	return r.relay.Deleted(ctx, ev)
}

// since returns the number of calls since the last call of since.
func (r *askedRelay) since() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, times := range r.asked {
		n += times
		delete(r.asked, id)
	}
	return n
}

// asking is run with an askedRelay.
func asking(t *testing.T, test func(t *testing.T, w *world, r *askedRelay)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		r := &askedRelay{relay: w.relay, asked: make(map[graspsync.EventID]int)}
		w.host = r
		w.start()
		test(t, w, r)
		w.stop()
		require.Empty(t, w.git.Broken())
	})
}

// The relay is asked once whether a held pull request is deleted. Before, each new pull request and
// each push asked again for all held ones. With 2,000 pull requests, that delayed pushes of the
// owner by half a minute.
func TestWhatWaitsIsAskedForOnce(t *testing.T) {
	asking(t, func(t *testing.T, w *world, r *askedRelay) {
		w.serveAlice()
		const many = 60
		keys := relaytest.Keys("stranger", 6)
		pulls := make([]*nostrEvent, many)
		for i := range pulls {
			pulls[i] = proposes(keys[i%len(keys)], now(), 1_000+i, fmt.Sprint(i))
			w.held(pulls[i])
			wait(time.Second)
		}
		require.Equal(t, many, r.since())
		state := says(alice, now(), "main", 2)
		w.held(state)
		w.pushRefs(repoOf(alice), map[nip34.RefName]nip34.ObjectID{branch("main"): object(2)})
		wait(time.Second)
		require.True(t, w.relay.has(state))
		require.Less(t, r.since(), 8, "the state, and nothing for what waits")

		// A deletion causes questions about events of its author only.
		d := keys[0].Event(now(), graspsync.KindDeletion, "", nostrTag{"e", pulls[6].ID})
		w.relay.put(d)
		w.p.NotifyStored(eventtest.Of(d))
		wait(time.Second)
		require.Len(t, w.p.Held(nostrFilter{}), many-1)
		require.LessOrEqual(t, r.since(), 3*many/len(keys))

		// The hourly check asks about all events, because another program may have stored a
		// deletion.
		w.relay.put(keys[1].Event(now(), graspsync.KindDeletion, "", nostrTag{"e", pulls[7].ID}))
		require.NoError(t, w.p.Refetch(t.Context(), repoOf(alice)))
		wait(time.Second)
		require.Len(t, w.p.Held(nostrFilter{}), many-2)
	})
}

// An event that was deleted while it was held is not released, even if the deletion was not
// reported.
func TestDeletedUntoldIsNotReleased(t *testing.T) {
	asking(t, func(t *testing.T, w *world, _ *askedRelay) {
		w.serveAlice()
		state, pr := says(alice, now(), "main", 21), proposes(bob, now(), 22, "")
		w.held(state)
		w.held(pr)
		wait(time.Second)
		w.relay.put(alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", state.ID}), bob.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", pr.ID}))
		w.git.Put(repoOf(alice), object(21), object(22))
		w.p.Pushed(t.Context(), repoOf(alice), nil)
		wait(5 * time.Second)
		require.False(t, w.relay.has(state))
		require.False(t, w.relay.has(pr))
		require.False(t, w.hasRef(pr))
		require.Equal(t, object(1), w.git.RefsOf(repoOf(alice))[branch("main")])
		require.Empty(t, w.p.Held(nostrFilter{}))
	})
}

// While the relay cannot be asked, no event is released and no hold ends.
func TestFailedDeletedIsNoVerdict(t *testing.T) {
	asking(t, func(t *testing.T, w *world, r *askedRelay) {
		w.serveAlice()
		pr := proposes(bob, now(), 22, "")
		r.fails = func() error { return errDisk }
		w.held(pr)
		wait(time.Second)
		w.git.Put(repoOf(alice), object(22))
		w.p.Pushed(t.Context(), repoOf(alice), nil)
		wait(time.Minute)
		require.False(t, w.relay.has(pr))
		require.Len(t, w.p.Held(nostrFilter{}), 1)
		r.mu.Lock()
		r.fails = nil
		r.mu.Unlock()
		wait(5 * time.Minute)
		require.True(t, w.relay.has(pr))
		require.True(t, w.hasRef(pr))
	})
}

// Held events are parsed once. Before, each release parsed them again, also states with thousands
// of refs.
func TestStatesAndPullRequestsThatWaitAreParsedOnce(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.serveAlice()
		pr := proposes(bob, now(), 22, "")
		w.held(pr)
		parsed := w.p.PullRequest(eventtest.Of(pr).ID)
		require.NotNil(t, parsed)
		require.Same(t, parsed, w.p.PullRequest(parsed.ID))

		// The parsed form counts.
		before := w.p.Status().Bytes
		tags := []nostrTag{{"d", "r"}}
		for i := range 1_000 {
			tags = append(tags, nostrTag{fmt.Sprint("refs/tags/", i), object(30).String()})
		}
		w.held(alice.Event(now(), graspsync.KindState, "", tags...))
		require.Greater(t, w.p.Status().Bytes-before, int64(1_000*(40+2*16+100)))
	})
}
