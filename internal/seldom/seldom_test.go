package seldom

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One line per minute and key, and a limited number of keys.
func TestLines(t *testing.T) {
	var l Lines[int]
	now := time.Unix(1_700_000_000, 0)
	written := 0
	for range 600 {
		if l.May(1, now) {
			written++
		}
		now = now.Add(time.Second)
	}
	require.Equal(t, 10, written)
	require.True(t, l.May(2, now))
	for i := range 3 * most {
		l.May(i, now)
	}
	require.Len(t, l.at, most)
	require.False(t, l.May(3*most, now), "no room")
	now = now.Add(time.Minute)
	require.True(t, l.May(3*most, now))
	require.Len(t, l.at, 1, "what is over is forgotten")
}
