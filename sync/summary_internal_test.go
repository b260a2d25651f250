package sync

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Each number of a status has its place in the summary, and nothing is said twice.
func TestSummaryTellsOfAll(t *testing.T) {
	dead := RelayStatus{Phase: plan.Disconnected.String(), health: health.Dead, Wanted: 9, Confirmed: 7, Gaps: 1, FailedAttempts: 1}
	up := RelayStatus{Phase: plan.Live.String(), health: health.Healthy, Synced: true, Wanted: 9, Confirmed: 8, Gaps: 2, FailedAttempts: 4}
	now := Status{
		At: time.Unix(100, 0), Synced: true, Repos: 5, Roots: 6, Git: GitStatus{Complete: 9}, Relays: []RelayStatus{dead, up, up},
		Events: EventStatus{
			InFlight: 7, Waiting: 8, Failed: 10, Forged: 100,
			Rejected: map[string]uint64{"a": 20, "b": 1}, Dropped: map[string]uint64{"a": 30, "b": 1},
			Panics:  map[string]uint64{"store": 1000, "policy": 2000},
			Sources: map[string]uint64{"direct": 41, "live": 42, "catchup": 43, "daily": 44},
		},
	}
	want := Summary{
		Synced: true, Known: 3, Connected: 2, Dead: 1, InSync: 2, Unreached: 2, Repos: 5, Roots: 6, Git: GitStatus{Complete: 9}, Waiting: 8, InFlight: 7,
		Direct: 41, Live: 42, CatchUp: 43, Daily: 44, Gaps: 5, Rejected: 21, Dropped: 31, Errors: 3119,
	}
	require.Equal(t, want, now.Summary(Status{}))
	since := want
	since.Since = time.Second
	v := reflect.ValueOf(since)
	for f := range v.Type().Fields() {
		require.False(t, v.FieldByIndex(f.Index).IsZero(), "%s is not in this test", f.Name)
	}

	// a minute later nothing more has happened, then everything once more, then less
	later := now
	later.At = now.At.Add(time.Minute)
	nothing := Summary{
		Since: time.Minute, Synced: true, Known: 3, Connected: 2, Dead: 1, InSync: 2, Unreached: 2, Repos: 5, Roots: 6, Git: GitStatus{Complete: 9}, Waiting: 8, InFlight: 7,
	}
	require.Equal(t, nothing, later.Summary(now))
	later.Events.Rejected = map[string]uint64{"a": 21, "b": 2}
	later.Events.Dropped = map[string]uint64{"c": 34}
	twice := nothing
	twice.Rejected, twice.Dropped = 2, 3
	require.Equal(t, twice, later.Summary(now))
	later.Events.Dropped = nil
	twice.Dropped = 0
	require.Equal(t, twice, later.Summary(now), "fewer than before, since a relay was forgotten")
}
