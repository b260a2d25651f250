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
