package purgatory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Pull requests without room for a ref do not copy objects from other repositories. Before, such
// objects stayed as long as the events were held.
func TestWhatIsSharedHasRoom(t *testing.T) {
	const most = 1000
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: most}, Times: purgatory.Times{Hold: 20 * time.Hour}}.With(purgatory.Fixed{MaxHold: 20 * time.Hour}), func(t *testing.T, w *world) {
		w.serveAlice()
		mallory := relaytest.NewKey("mallory")
		w.relay.put(announce(mallory, now()-100), says(mallory, now()-100, "main", 1))
		w.git.Put(repoOf(mallory), object(1))
		w.git.Push(repoOf(mallory), map[nip34.RefName]nip34.ObjectID{branch("main"): object(1)})
		both := func(by *relaytest.Key, tip int) *nostrEvent {
			return by.Event(now(), graspsync.KindPullRequest, "for both", nostrTag{"a", repoOf(alice).String()},
				nostrTag{"a", repoOf(mallory).String()}, nostrTag{"c", object(tip).String()})
		}
		size := func(of *relaytest.Key) (sum int64) {
			for _, id := range w.git.Objects(repoOf(of)) {
				sum += w.git.Bytes(id)
			}
			return sum
		}
		for i := range 20 {
			w.git.Size(object(100+i), 900+int64(i))
			w.git.Put(repoOf(mallory), object(100+i))
			w.held(both(relaytest.NewKey(fmt.Sprint("eve", i)), 100+i))
			wait(time.Second)
		}
		require.Greater(t, size(mallory), int64(10*most))
		require.LessOrEqual(t, size(alice), int64(2*most))
		w.git.Size(object(50), 10) // size of the existing objects
		w.git.Put(repoOf(mallory), object(50))
		honest := both(dave, 50)
		w.held(honest)
		wait(time.Second)
		require.True(t, w.hasRef(honest))
	})
}

// leavingStore is a store whose clients disconnect during a write.
type leavingStore struct {
	state.Store
	leave func()
}

func (s *leavingStore) Put(ctx context.Context, records ...state.Record) error {
	err := s.Store.Put(context.WithoutCancel(ctx), records...)
	if s.leave(); ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (s *leavingStore) Delete(ctx context.Context, keys ...string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.Store.Delete(ctx, keys...)
}

// A client that disconnects during the write leaves no event on the disk. Before, such events and
// the events that they evicted stayed, counted in no quota, and could fill the disk.
func TestWhoGoesLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Limits: purgatory.Limits{MaxEntries: 16}}.With(purgatory.Fixed{MaxPerAuthor: 16}))
		store := &leavingStore{Store: w.state, leave: func() {}}
		w.state = store
		w.start()
		w.relay.put(announce(alice, now()))
		for i := range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			store.leave = cancel
			_, _ = w.p.Submit(ctx, eventtest.Of(proposes(relaytest.NewKey(fmt.Sprint("eve", i%10)), now(), i, fmt.Sprint(i))), graspsync.Source{})
			cancel()
			wait(10 * time.Second)
		}
		store.leave = func() {}
		kept := 0
		for _, err := range store.Each(t.Context(), "purgatory/entry/") {
			require.NoError(t, err)
			kept++
		}
		require.Equal(t, len(w.p.Held(nostrFilter{})), kept)
		require.Positive(t, w.p.Status().Displaced)
		w.stop()
	})
}

// A client that disconnects leaves no older version of an announcement on the disk.
func TestWhoGoesLeavesNoOlderVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		store := &leavingStore{Store: w.state, leave: func() {}}
		w.state = store
		w.start()
		for i := range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			store.leave = cancel
			_, err := w.p.Submit(ctx, eventtest.Of(announce(alice, now())), graspsync.Source{})
			require.NoError(t, err, i)
			cancel()
			wait(10 * time.Second)
		}
		store.leave = func() {}
		kept := 0
		for _, err := range store.Each(t.Context(), "purgatory/entry/") {
			require.NoError(t, err)
			kept++
		}
		require.Equal(t, 1, kept)
		require.EqualValues(t, 9, w.p.Status().Replaced)
		w.stop()
	})
}

// The bytes of pull requests in a retired repository are no longer counted. Before, they counted
// until the next start, in the quota of the owner.
func TestWhatGaveWayLeavesWithItsRepository(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: 1000}}, func(t *testing.T, w *world) {
		a := served(w)
		for i := range 2 {
			w.git.Size(object(100+i), 600-int64(i)*200)
			w.git.Put(repoOf(alice), object(100+i))
			w.held(proposes(relaytest.NewKey("eve"), now()+nostrTime(i), 100+i, "and another one"))
			wait(time.Minute)
		}
		w.git.Size(object(102), 300)
		w.git.Put(repoOf(alice), object(102))
		w.held(proposes(relaytest.NewKey("eve"), now()+5, 102, "one too many"))
		wait(time.Second)
		require.Positive(t, w.p.PullBytes(alice.PubKey()))
		w.relay.gone(a)
		w.p.NotifyStored(eventtest.Of(alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", a.ID})))
		wait(time.Second)
		require.False(t, w.git.Has(repoOf(alice)))
		require.Zero(t, w.p.PullBytes(alice.PubKey()))
	})
}

// failing is a maintainer of repositories that takes long and fails.
type failing struct {
	*runs
}

func (f failing) Maintain(ctx context.Context, how purgatory.Maintenance) (purgatory.Maintained, error) {
	if _, err := f.runs.Maintain(ctx, how); err != nil || !how.Prune {
		return purgatory.Maintained{}, err
	}
	return purgatory.Maintained{}, errors.New("time limit exceeded")
}

// A prune that timed out is not repeated for a while. Before, it was repeated every minute, and
// locked the repository each time.
func TestWhatFailsToGoIsLeftAloneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: 1000}})
		git := &runs{Fake: w.git, takes: func(string) time.Duration { return 2 * time.Minute }}
		w.fetcher = failing{git}
		w.start()
		w.serveAlice()
		for i := range 2 {
			w.git.Size(object(100+i), 900)
			ev := proposes(relaytest.NewKey("eve"), now()+nostrTime(i), 100+i, "and another one")
			w.relay.put(ev)
			_ = w.pushFor(ev, 900)
			wait(time.Second)
		}
		require.Positive(t, w.p.PullBytes(alice.PubKey()))
		wait(3 * time.Hour)
		git.mu.Lock()
		tried := len(git.order)
		git.mu.Unlock()
		require.InDelta(t, 9, tried, 3, "each 20 minutes")
		w.stop()
	})
}
