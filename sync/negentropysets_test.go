package sync

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
)

// slowStamps is a Store that takes a second to read keys.
type slowStamps struct {
	Store
	reads int
}

func (s *slowStamps) Keys(ctx context.Context, _ nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	s.reads++
	return func(yield func(graspsync.EventKey, error) bool) {
		select {
		case <-time.After(time.Second):
			yield(graspsync.EventKey{CreatedAt: 1}, nil)
		case <-ctx.Done():
			yield(graspsync.EventKey{}, ctx.Err())
		}
	}
}

// Relays share a set that is loaded for one of them. If that relay disconnects, the others must not
// be fetched by pages for that reason.
func TestSetIsLoadedThoughTheFirstHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStamps{}
		s := newNegentropySets(store, nil, 10, nil, nil)
		first, hangUp := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := s.load(first, nostr.Filter{})
			failed <- err
		}()
		synctest.Wait()
		loaded := make(chan *negentropy.Set, 2)
		for range 2 {
			go func() {
				set, err := s.load(t.Context(), nostr.Filter{})
				assert.NoError(t, err)
				loaded <- set
			}()
		}
		synctest.Wait()
		hangUp()
		require.ErrorIs(t, <-failed, context.Canceled)
		require.Equal(t, 1, (<-loaded).Len())
		require.Equal(t, 1, (<-loaded).Len())
		require.Equal(t, 2, store.reads)
	})
}

// The last loaded set of a pass stayed in memory until the next pass.
func TestOldSetsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNegentropySets(&slowStamps{}, nil, 10, nil, nil)
		_, err := s.load(t.Context(), nostr.Filter{})
		require.NoError(t, err)
		s.forgetOld(time.Now().Add(setAge - time.Second))
		require.Len(t, s.loaded, 1)
		s.forgetOld(time.Now().Add(setAge + time.Second))
		require.Empty(t, s.loaded)
		require.Empty(t, s.begun)

		// A set that replaced a failed one has its own age.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.load(ctx, nostr.Filter{})
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(setAge / 2)
		_, err = s.load(t.Context(), nostr.Filter{})
		require.NoError(t, err)
		_, err = s.load(t.Context(), nostr.Filter{Limit: 1})
		require.NoError(t, err)
		s.forgetOld(time.Now().Add(setAge*2/3 - time.Second))
		require.Len(t, s.loaded, 2)
		s.forgetOld(time.Now().Add(setAge - 3*time.Second/2))
		require.Len(t, s.loaded, 1)
		s.forgetOld(time.Now().Add(setAge + time.Second))
		require.Empty(t, s.loaded)
		require.Empty(t, s.begun)
	})
}
