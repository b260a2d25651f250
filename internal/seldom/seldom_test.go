package seldom

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One line a minute about each thing, and no more things than there is room for.
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

func TestText(t *testing.T) {
	require.Equal(t, `"a\x1b\n\u202e"`, Text("a\x1b\n\u202e"))
	for _, s := range []string{"", "x", "\x01", "\u202e", "\U0001f600", "\xff", `"`} {
		for n := range 700 {
			text := Text(strings.Repeat(s, n))
			require.LessOrEqual(t, len(text), 300)
			require.True(t, strings.HasPrefix(text, `"`) && strings.HasSuffix(text, `"`))
			if n >= 300 && s != "" {
				require.Greater(t, len(text), 270)
			}
		}
	}
}
