package sync

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
)

// While the loop read the whole index, reporters of events waited: for 0.6 s with 500,000 root
// events.
func TestStoredDoesNotWaitForEverything(t *testing.T) {
	racetest.Amounts(t)
	const roots = 100_000
	x := index.New(func(*nip34.Announcement) bool { return true }, nip34.Identity{}, nil)
	ref := testRepo(1, "repo")
	x.Stored(eventtest.Of(testAnnouncement(1, 1, "repo", 1, "ours")))
	for i := range roots {
		x.Stored(eventtest.Of(testEvent(10_000+i, graspsync.KindPatch, 1, 1, tagRepo(ref))))
	}
	f := newSelfSubscriber(&SyncManager{cfg: &Config{constants: constants{FeedQueue: 10}}, index: x})
	f.notifyAllChanged()
	var stored atomic.Int64
	began, stop, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1 << 30 {
			f.stored(eventtest.Of(testEvent(1_000+i%200, graspsync.KindPatch, 2, 1, tagRepo(ref))))
			if stored.Add(1) == 1 {
				close(began)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	<-began
	before := stored.Load()
	b, _, everything := f.take()
	during := stored.Load() - before
	close(stop)
	<-done
	require.True(t, everything)
	require.Positive(t, during, "nobody waits")
	all := make(map[graspsync.EventID]bool)
	for range 2 { // events stored in between are included, or come next
		for id := range b.Roots {
			all[id] = true
		}
		b, _, _ = f.take()
	}
	require.Len(t, all, roots+min(200, int(stored.Load())))
}
