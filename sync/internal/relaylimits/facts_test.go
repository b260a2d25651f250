package relaylimits

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFactsExpire(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var f Facts
	require.Zero(t, f.Value(MaxFilters, now))
	f.Learn(MaxFilters, 7, now.Add(time.Hour))
	require.Equal(t, 7, f.Value(MaxFilters, now))
	require.Equal(t, 7, f.Value(MaxFilters, now.Add(time.Hour-1)))
	require.Zero(t, f.Value(MaxFilters, now.Add(time.Hour)))
	require.Zero(t, f.Value(PageSize, now))
	require.Equal(t, map[string]int{"max_filters": 7}, f.Known(now))
	f.Forget(MaxFilters)
	require.Zero(t, f.Value(MaxFilters, now))
}

func TestJSONKeepsEverything(t *testing.T) {
	now := time.Now()
	var f, g Facts
	for k := range kinds {
		f.Learn(k, int(k)+1, now.Add(time.Duration(k+1)*time.Minute))
	}
	data, err := json.Marshal(f)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &g))
	require.Equal(t, f, g)
}

// Any stored data is read safely: unknown names, invalid values, and times of a fast clock.
func TestWhatADiskMayHold(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var f Facts
	require.Error(t, json.Unmarshal([]byte(`[]`), &f))
	require.NoError(t, json.Unmarshal([]byte(
		`{"later_invention":{"value":1,"until":"2200-01-01T00:00:00Z"},
		  "max_values":{"value":-4,"until":"2200-01-01T00:00:00Z"},
		  "no_negentropy":{"value":1,"until":"2200-01-01T00:00:00Z"}}`), &f))
	require.Equal(t, map[string]int{"no_negentropy": 1}, f.Known(now))
	f.Clamp(now)
	require.Equal(t, 1, f.Value(NoNegentropy, now.Add(Longest-1)))
	require.Zero(t, f.Value(NoNegentropy, now.Add(Longest)))
}

func TestNames(t *testing.T) {
	for k, name := range []string{
		"no_negentropy", "needs_kinds", "max_values", "max_filters", "max_subscriptions", "max_message", "page_size",
		"negentropy_max", "pace", "max_retained", "no_limit_zero", "no_notes", "kind(12)",
	} {
		require.Equal(t, name, Kind(k).String()) //nolint:gosec // small
	}
	require.EqualValues(t, 6, PageSize)
	require.Equal(t, "kind(200)", Kind(200).String())
}

// The encoding contains exactly the known facts, and decoding replaces earlier facts.
func TestWhatIsKept(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
	var f Facts
	text := func() string {
		b, err := json.Marshal(f)
		require.NoError(t, err)
		return string(b)
	}
	require.Equal(t, "{}", text())
	f.Learn(NeedsKinds, 1, now)
	f.Learn(PageSize, 0, now)
	require.Equal(t, `{"needs_kinds":{"value":1,"until":"2029-12-31T23:00:00Z"}}`, text())
	require.NoError(t, json.Unmarshal([]byte(`{"page_size":{"value":0,"until":"2200-01-01T00:00:00Z"}}`), &f))
	require.Equal(t, Facts{}, f)
	require.ErrorContains(t, json.Unmarshal([]byte(`{"page_size":7}`), &f), "reading learned facts: ")

	for until, want := range map[time.Duration]time.Duration{
		0: 0, 720*time.Hour - 1: 720*time.Hour - 1, 720 * time.Hour: 720 * time.Hour, 720*time.Hour + 1: 720 * time.Hour,
	} {
		var f, g Facts
		f.Learn(MaxValues, 3, now.Add(until))
		g.Learn(MaxValues, 3, now.Add(want))
		f.Clamp(now)
		require.Equal(t, g, f)
	}
}
