package gitfetch

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Walks that take minutes, in repositories of whichever owners, had all places, so that
// what is read in a moment waited as long.
func TestShortReadsDoNotWaitForLongWalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4)
		for i := range 40 {
			go func() {
				release, err := s.acquire(t.Context(), fmt.Sprintf("/repos/%d/r.git", i), true)
				if err == nil {
					time.Sleep(5 * time.Minute)
					release()
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		release, err := s.acquire(t.Context(), "/repos/honest/r.git", false)
		require.NoError(t, err)
		release()
		quick, cancel := context.WithTimeout(t.Context(), longAfter)
		defer cancel()
		release, err = s.acquire(quick, "/repos/honest/r.git", true)
		require.NoError(t, err, "one that ends soon is short")
		release()
		require.Zero(t, time.Since(began))
		time.Sleep(4 * time.Hour)
		require.Zero(t, s.len())
	})
}

// Who has many repositories has no more turns for that.
func TestSlotsInTurnsByOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2)
		for i := range 40 {
			go func() {
				release, err := s.acquire(t.Context(), fmt.Sprintf("/repos/mallory/%d.git", i), false)
				if err == nil {
					time.Sleep(time.Second)
					release()
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		release, err := s.acquire(t.Context(), "/repos/alice/r.git", false)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
		release()
		a, err := s.acquire(t.Context(), "/repos/alice/r.git", false)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err = s.acquire(ctx, "/repos/alice/r.git", false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		a()
		time.Sleep(time.Hour)
		require.Zero(t, s.len())
	})
}

// Walks that are over soon had all places at once, and what is read in a moment waited for
// each of them.
func TestWalksLeaveAPlaceToReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4)
		for i := range 8 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if release, err := s.acquire(ctx, fmt.Sprintf("/repos/%d/r.git", i), true); err == nil {
					<-ctx.Done()
					release()
				}
			}()
		}
		synctest.Wait()
		require.Equal(t, 3, s.len())
		began := time.Now()
		release, err := s.acquire(t.Context(), "/repos/alice/r.git", false)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		release()
		time.Sleep(time.Minute)
		require.Zero(t, s.len())
	})
}
