package sync

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

// What is said is taken in in order, and nothing is left out where there is no room.
func TestSubmissionsKeepAllInOrder(t *testing.T) {
	var taken []graspsync.EventID
	s := newSubmissions(func(ev graspsync.Event) { taken = append(taken, ev.ID) })
	var want []graspsync.EventID
	for i := range 3 * maxSubmissions / 2 {
		s.stored(eventtest.Of(testEvent(i, graspsync.KindIssue, 1, 1)))
		want = append(want, testID(i))
	}
	require.Len(t, taken, maxSubmissions)
	for range 3 {
		s.takeIn()
	}
	require.Equal(t, want, taken)
	require.Empty(t, s.events)
}

// Stored waits for nobody who has the index, and what it reports is known to who asks next.
func TestStoredWaitsForNobody(t *testing.T) {
	m := newSaidBench(t, &saidPolicy{})
	m.index.mu.RLock() // as who goes through all there is does
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.Stored(eventtest.Of(testAnnouncement(1, 1, "repo", nostr.Now(), "ours")))
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		require.Fail(t, "it waits")
	}
	m.index.mu.RUnlock()
	require.Nil(t, m.index.announcement(testRepo(1, "repo")))
	m.Held(eventtest.Of(testEvent(2, graspsync.KindIssue, 1, 1)))
	require.NotNil(t, m.index.announcement(testRepo(1, "repo")))
}
