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
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
)

// bounded are repositories with a limit of bytes for one owner.
type bounded struct {
	*fetchtest.Fake
	mu   sync.Mutex
	left int64 // guarded by mu
	came int64 // guarded by mu
}

func (b *bounded) Reserve(_ context.Context, _ graspsync.RepoRef, _ bool, bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left <= bytes {
		return fmt.Errorf("%w: %d bytes left", purgatory.ErrFull, b.left)
	}
	b.left -= bytes
	b.came += bytes
	return nil
}

func (b *bounded) set(left int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = left
}

// Fetches respect the limit of an owner. Before, only pushes did, and strangers could fill the disk
// with fetches of their repositories.
func TestWhatIsFetchedHasACeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{Times: purgatory.Times{Hold: 40 * time.Hour}}.With(purgatory.Fixed{MaxHold: 40 * time.Hour}))
		b := &bounded{Fake: w.git, left: 1000}
		w.repos = b
		w.start()
		defer w.stop()
		large := serving(1)
		large.Bytes = 5000
		w.git.Serve(clone("large.example/r.git"), large)
		w.relay.put(announce(alice, now()-500, "large.example/r.git"))
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(2 * time.Hour)
		require.False(t, w.relay.has(s))
		require.Zero(t, w.git.Quarantines(), "nothing is kept of it")
		require.Len(t, w.git.Calls(), 1, "nor fetched again and again")
		require.Zero(t, b.came)
		require.Positive(t, w.p.Status().Dropped["ceiling"])
		require.Equal(t, 1, w.p.Status().States, "it waits")

		b.set(0) // others use the rest
		small := says(bob, now(), "main", 2)
		w.git.Serve(clone("small.example/r.git"), serving(2))
		w.relay.put(announce(bob, now()-500, "small.example/r.git"))
		w.held(small)
		wait(time.Hour)
		require.Len(t, w.git.Calls(), 1, "where there is no room nobody is asked")
		require.False(t, w.relay.has(small))
		b.set(1000)
		wait(time.Hour)
		require.True(t, w.relay.has(small))
		require.EqualValues(t, 100, b.came)
		require.Len(t, w.git.Calls(), 2)
		require.False(t, w.relay.has(s))
		b.set(20_000) // bytes reserved only to ask are not given back
		wait(time.Hour)
		require.Len(t, w.git.Calls(), 2)
		wait(24 * time.Hour)
		require.True(t, w.relay.has(s), "there is room on the next day")
		require.Len(t, w.git.Calls(), 3)

		b.set(1000)
		large.Objects = append(large.Objects, object(3), object(4))
		w.git.Serve(clone("large.example/r.git"), large)
		w.held(says(alice, now(), "main", 3))
		wait(time.Hour)
		require.Len(t, w.git.Calls(), 4)
		large.Bytes = 100
		w.git.Serve(clone("large.example/r.git"), large)
		s = says(alice, now(), "main", 4)
		w.held(s)
		wait(time.Hour)
		require.True(t, w.relay.has(s), "other objects may have room")
	})
}
