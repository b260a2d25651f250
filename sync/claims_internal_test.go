package sync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func claimIDs(from, to int) (ids []graspsync.EventID) {
	for i := from; i < to; i++ {
		ids = append(ids, graspsync.EventID{1: byte(i), 31: 1})
	}
	return ids
}

func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClaims()
		a, b := &fetching{}, &fetching{}
		slow, other := &relayStats{}, &relayStats{}
		free, busy, held := c.take(claimIDs(0, 10), a, slow, time.Now())
		require.Equal(t, claimIDs(0, 10), free)
		require.Empty(t, busy)
		require.Nil(t, held)

		free, busy, held = c.take(claimIDs(5, 12), b, other, time.Now())
		require.Equal(t, claimIDs(10, 12), free)
		require.Equal(t, claimIDs(5, 10), busy)

		// As long as some of it comes, it is waited for, up to the most.
		began := time.Now()
		waited := make(chan error, 1)
		go func() { waited <- c.wait(t.Context(), held) }()
		for i := range 9 {
			time.Sleep(4 * time.Second)
			c.settled(claimIDs(i, i+1)[0])
		}
		require.NoError(t, <-waited)
		require.Equal(t, claimMost, held.moved.Add(2*time.Second).Sub(began), "the last that counted came 28 s after the first")
		require.Empty(t, a.claims[0].ids)
		require.Len(t, c.by, 2, "those of b")

		// Nobody waits for it again, for a while.
		free, _, held = c.take(claimIDs(20, 25), a, slow, time.Now())
		require.Len(t, free, 5)
		require.Nil(t, held)
		require.Len(t, c.by, 2)
		time.Sleep(unclaimed)
		c.take(claimIDs(20, 25), a, slow, time.Now())
		require.Len(t, c.by, 7)

		// A batch that ends gives up what it has claimed, and claims nothing more.
		_, _, held = c.take(claimIDs(20, 25), b, other, time.Now())
		go func() { waited <- c.wait(t.Context(), held) }()
		synctest.Wait()
		require.Empty(t, waited)
		c.leave(a)
		require.NoError(t, <-waited)
		require.Len(t, c.by, 2)
		c.take(claimIDs(30, 35), a, slow, time.Now())
		c.leave(b)
		require.Empty(t, c.by)

		// All that came ends it, and so does the end of who waits.
		third := &fetching{}
		c.take(claimIDs(40, 42), third, other, time.Now())
		_, _, held = c.take(claimIDs(40, 42), b, slow, time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		go func() { waited <- c.wait(ctx, held) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-waited, context.Canceled)
		go func() { waited <- c.wait(t.Context(), held) }()
		c.settled(claimIDs(40, 41)[0])
		synctest.Wait()
		require.Empty(t, waited)
		c.settled(claimIDs(41, 42)[0])
		require.NoError(t, <-waited)
		require.Empty(t, c.by)
	})
}
