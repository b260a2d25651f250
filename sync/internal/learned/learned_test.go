package learned

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

// Whatever a disk holds is read without harm: unknown names, senseless values, and
// times of a clock that ran ahead.
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
	require.Equal(t, "page_size", PageSize.String())
	require.Equal(t, "kind(200)", Kind(200).String())
}
