package sync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// ids returns made up ids.
func ids(from, to int) (list []graspsync.EventID) {
	for i := from; i < to; i++ {
		list = append(list, graspsync.EventID{1: byte(i), 31: 1})
	}
	return list
}

func TestClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, first := newClaims(), ids(0, 10)
		a, b := &fetching{}, &fetching{}
		slow, other := &relayStats{}, &relayStats{}
		free, busy, held := c.take(ids(0, 10), a, slow, time.Now())
		require.Equal(t, ids(0, 10), free)
		require.Empty(t, busy)
		require.Nil(t, held)

		free, busy, held = c.take(ids(5, 12), b, other, time.Now())
		require.Equal(t, ids(10, 12), free)
		require.Equal(t, ids(5, 10), busy)

		// As long as enough of it comes, it is waited for.
		began := time.Now()
		waited := make(chan error, 1)
		go func() { waited <- c.wait(t.Context(), held, b) }()
		time.Sleep(4 * time.Second)
		for _, id := range first {
			c.arrived(id)
		}
		time.Sleep(4 * time.Second) // what came is not dealt with, which is not its fault
		require.Empty(t, waited)
		for _, id := range first[:9] {
			c.settled(id)
		}
		require.Empty(t, waited)
		c.settled(first[9])
		require.NoError(t, <-waited)
		require.Equal(t, 8*time.Second, time.Since(began))
		require.Equal(t, 8*time.Second, b.waited)
		require.Len(t, c.by, 2, "those of b")
		require.Zero(t, slow.credit)

		// Nobody waits again for who sends too little, for a while that doubles.
		_, _, held = c.take(ids(20, 25), a, slow, time.Now())
		require.Nil(t, held)
		_, busy, held = c.take(ids(20, 25), b, other, time.Now())
		require.Len(t, busy, 5)
		go func() { waited <- c.wait(t.Context(), held, b) }()
		time.Sleep(time.Second)
		c.arrived(ids(20, 21)[0])
		c.settled(ids(20, 21)[0])
		require.NoError(t, <-waited)
		require.Equal(t, 8*time.Second+claimFor, b.waited)
		free, _, held = c.take(ids(20, 25), a, slow, time.Now())
		require.Len(t, free, 5)
		require.Nil(t, held)
		require.Len(t, c.by, 2)
		require.EqualValues(t, 10+2+5, c.claimed.Load())
		require.EqualValues(t, 1, c.lapsed.Load())
		time.Sleep(unclaimed)
		slow.credit.lose(time.Now())
		require.Equal(t, time.Now().Add(2*unclaimed), slow.credit.from)
		time.Sleep(2 * unclaimed)
		c.take(ids(20, 25), a, slow, time.Now())
		require.Len(t, c.by, 7)

		// A batch waits so long in all, whoever is slow, and then takes all.
		_, _, held = c.take(ids(20, 25), b, other, time.Now())
		require.NoError(t, c.wait(t.Context(), held, b))
		require.Equal(t, claimPatience, b.waited)
		free, busy, held = c.take(ids(20, 25), b, other, time.Now())
		require.Len(t, free, 5)
		require.Empty(t, busy)
		require.Nil(t, held)
		b.waited = 0

		// It claims a part at a time.
		many := make([]graspsync.EventID, claimIDs+7)
		for i := range many {
			many[i] = graspsync.EventID{0: 1, 1: byte(i), 2: byte(i >> 8)}
		}
		fourth := &fetching{}
		free, busy, held = c.take(many, fourth, other, time.Now())
		require.Len(t, free, claimIDs)
		require.Len(t, busy, 7)
		require.Nil(t, held)
		c.leave(fourth)

		// A batch that ends gives up what it has claimed, and claims nothing more.
		_, _, held = c.take(ids(20, 25), b, other, time.Now())
		go func() { waited <- c.wait(t.Context(), held, b) }()
		synctest.Wait()
		require.Empty(t, waited)
		c.leave(a)
		require.NoError(t, <-waited)
		require.Len(t, c.by, 2)
		c.take(ids(30, 35), a, slow, time.Now())
		c.leave(b)
		require.Empty(t, c.by)

		// All that came ends it, and so does the end of who waits.
		third := &fetching{}
		c.take(ids(40, 42), third, other, time.Now())
		_, _, held = c.take(ids(40, 42), b, slow, time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		go func() { waited <- c.wait(ctx, held, b) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-waited, context.Canceled)
		go func() { waited <- c.wait(t.Context(), held, b) }()
		c.settled(ids(40, 41)[0])
		synctest.Wait()
		require.Empty(t, waited)
		c.settled(ids(41, 42)[0])
		require.NoError(t, <-waited)
		require.Empty(t, c.by)
	})
}
