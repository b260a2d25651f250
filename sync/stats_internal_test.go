package sync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
)

// What a batch says of a relay is added up; the size of its pages is believed as long as it is
// seen again, and gives way to a larger one only.
func TestStatsOfABatch(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var s relayStats
	size := func(at time.Duration) int { return s.observed.Facts.Value(relaylimits.PageSize, begin.Add(at)) }
	batch := func(at time.Duration, r session.Report) { s.batch(r, begin.Add(at)) }
	const long = relaylimits.Longest
	batch(0, session.Report{PageSize: 100, Missing: 2, Seconds: 3, Method: session.Method(1)})
	require.Equal(t, 100, size(long-1))
	require.Zero(t, size(long))
	batch(long/2, session.Report{PageSize: 99, Missing: 5, Err: "error: \x1b[31m"})
	require.Equal(t, 100, size(long-1))
	require.Zero(t, size(long), "a smaller page says nothing")
	batch(long/2, session.Report{PageSize: 100, Seconds: 7, Method: session.Method(2)})
	require.Equal(t, 100, size(long+long/2-1), "it was seen again")
	batch(long/2, session.Report{})
	batch(long/2, session.Report{PageSize: 101})
	require.Equal(t, 101, size(long+long/2-1))
	batch(2*long, session.Report{PageSize: 5})
	require.Equal(t, 5, size(2*long), "it was believed no more")
	require.Equal(t, []uint64{7, 10}, []uint64{s.missing.Load(), s.seconds.Load()})
	require.Equal(t, session.Method(3), s.method)
	require.NotContains(t, s.lastErr, "\x1b")
	require.NotEmpty(t, s.lastErr)
}

// A relay is news when it is seen to be synced, and again when it was not in between.
func TestNewsOfBeingSynced(t *testing.T) {
	begin := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := relayStats{connectedAt: begin}
	for i, step := range []struct {
		synced, news bool
		took         time.Duration
	}{{false, false, 0}, {true, true, 1}, {true, false, 1}, {false, false, 0}, {true, true, 4}} {
		require.Equal(t, step.news, s.noteSynced(begin.Add(time.Duration(i)), step.synced), i)
		require.Equal(t, step.took, s.syncTime(), i)
	}
}
