package keyed

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// LockUnused fails while the key is used, locked or waited for. Later callers wait for it.
func TestLockUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocks[int]()
		done := l.Use(1)
		_, ok := l.LockUnused(1)
		require.False(t, ok)
		done()
		unlock, err := l.Lock(t.Context(), 1)
		require.NoError(t, err)
		_, ok = l.LockUnused(1)
		require.False(t, ok)
		unlock()
		unlock, ok = l.LockUnused(1)
		require.True(t, ok)
		_, ok = l.TryLock(1)
		require.False(t, ok)
		_, ok = l.LockUnused(1)
		require.False(t, ok)
		began := time.Now()
		time.AfterFunc(time.Second, unlock)
		unlock, err = l.Lock(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
		_, ok = l.LockUnused(1)
		require.False(t, ok, "the other one is still there")
		unlock()
		require.Zero(t, l.Len())
	})
}
