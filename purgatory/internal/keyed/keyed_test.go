package keyed

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// One caller at a time holds a lock. Locks of different keys are independent.
func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocks[string]()
		unlock, err := l.Lock(t.Context(), "a")
		require.NoError(t, err)
		other, err := l.Lock(t.Context(), "b")
		require.NoError(t, err)
		var second atomic.Bool
		go func() {
			unlock, err := l.Lock(t.Context(), "a")
			require.NoError(t, err)
			second.Store(true)
			unlock()
		}()
		synctest.Wait()
		require.False(t, second.Load())
		require.Equal(t, 2, l.Len())
		unlock()
		synctest.Wait()
		require.True(t, second.Load())
		require.Equal(t, 1, l.Len())
		other()
		require.Zero(t, l.Len(), "nothing is kept")
	})
}
