package seconds_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/seconds"
)

// A duration survives a round trip through JSON as seconds.
func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", 1500 * time.Millisecond: "1.5", time.Hour: "3600", time.Nanosecond: "0.000000001"} {
		text, err := json.Marshal(seconds.Seconds(d))
		require.NoError(t, err)
		require.Equal(t, want, string(text))
		var back seconds.Seconds
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, d, time.Duration(back))
	}
	var s seconds.Seconds
	require.Error(t, json.Unmarshal([]byte(`"1s"`), &s))
}
