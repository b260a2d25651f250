package stopwatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	errOver    = errors.New("over")
	errCrowded = errors.New("crowded")
)

// Time counts only during work, not before, after, or while waiting.
func TestOnlyWorkCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(time.Minute, errCrowded)
		time.Sleep(time.Hour)
		ctx, cancel := w.Limit(t.Context(), 5*time.Second, errOver)
		time.Sleep(2 * time.Second)
		left, limited := Left(ctx)
		require.True(t, limited)
		require.Equal(t, 3*time.Second, left)
		done, again := Waits(ctx), Waits(ctx)
		time.Sleep(20 * time.Second)
		done()
		done()
		time.Sleep(20 * time.Second)
		again()
		require.NoError(t, ctx.Err())
		require.Equal(t, 2*time.Second, w.Worked())
		cancel()
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)
		time.Sleep(time.Hour)
		require.Equal(t, 2*time.Second, w.Worked())

		ctx, cancel = w.Limit(t.Context(), 3*time.Second, errOver)
		defer cancel()
		began := time.Now()
		<-ctx.Done()
		require.Equal(t, 3*time.Second, time.Since(began))
		require.ErrorIs(t, context.Cause(ctx), errOver)
		require.Equal(t, 5*time.Second, w.Worked())
		left, _ = Left(ctx)
		require.Zero(t, left)
	})
}

// Waits have a total limit, with its own cause.
func TestWaitingHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(time.Minute, errCrowded)
		for range 2 {
			ctx, cancel := w.Limit(t.Context(), time.Second, errOver)
			done := Waits(ctx)
			time.Sleep(25 * time.Second)
			done()
			require.NoError(t, ctx.Err())
			cancel()
		}
		ctx, cancel := w.Limit(t.Context(), time.Second, errOver)
		defer cancel()
		began := time.Now()
		defer Waits(ctx)()
		<-ctx.Done()
		require.Equal(t, 10*time.Second, time.Since(began))
		require.ErrorIs(t, context.Cause(ctx), errCrowded)
		require.Zero(t, w.Worked())
	})
}

// Several limits share one watch. A context without limit has none.
func TestLimitsShareAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(time.Minute, errCrowded)
		first, cancel := w.Limit(t.Context(), 2*time.Second, errOver)
		defer cancel()
		second, cancel := w.Limit(t.Context(), 4*time.Second, errOver)
		defer cancel()
		began := time.Now()
		<-first.Done()
		require.Equal(t, 2*time.Second, time.Since(began))
		require.NoError(t, second.Err())
		<-second.Done()
		require.Equal(t, 4*time.Second, time.Since(began))
		none, cancel := w.Limit(t.Context(), 0, errOver)
		defer cancel()
		require.ErrorIs(t, context.Cause(none), errOver)
		Waits(t.Context())()
		_, limited := Left(t.Context())
		require.False(t, limited)
	})
}
