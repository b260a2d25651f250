package relaylimits

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What others plan with, or an earlier version has written, is what was decided. Whoever
// changes one of these changes it here as well.
func TestFiguresAreAsDecided(t *testing.T) {
	require.Equal(t, []int{1_024, 1_000, 2, 6, 4_096, 131_072, 100, 2, 200, 9, 8, 2}, []int{
		LeastMessage, MaxAside, cutsBelieved, cutsDoubted, LeastSaid, MostSaid, MostFilters,
		LeastSubscriptions, MostSubscriptions, SinceSize, maxHistoric, keptHistoric,
	})
	require.Equal(t, 24*time.Hour, Believed)
	require.Equal(t, 720*time.Hour, Longest)
}
