package khatruadapter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	relaysync "github.com/graspsync/graspsync/sync"
)

// A published event waits for the first read of the store, for a limited time.
func TestPublishedWhileStarting(t *testing.T) {
	expectLog(t, "ERROR judging an event failed")
	s, _, m := embed(t, khatru.NewRelay(), newSlice(t), Config{ApplyPolicyToClients: true})
	synctest.Test(t, func(t *testing.T) {
		m.ready, m.err = make(chan struct{}), relaysync.ErrNotReady
		go func() {
			time.Sleep(9 * time.Second)
			m.mu.Lock()
			m.verdict, m.err = graspsync.Verdict{Decision: graspsync.Accept}, nil
			m.mu.Unlock()
			close(m.ready)
		}()
		began := time.Now()
		rejected, msg := s.reject(t.Context(), event(alice, 1, start))
		require.False(t, rejected, msg)
		require.Equal(t, 9*time.Second, time.Since(began))

		m.ready, m.err = make(chan struct{}), relaysync.ErrNotReady
		began = time.Now()
		_, msg = s.reject(t.Context(), event(alice, 1, start))
		require.Equal(t, embedding.MsgJudge, msg)
		require.Equal(t, 10*time.Second, time.Since(began))
	})
}
