package goldentest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The first different part is found, whether it is changed, missing or superfluous.
func TestSums(t *testing.T) {
	lines := make([]string, 2*partLines+1)
	for i := range lines {
		lines[i] = fmt.Sprint("line ", i)
	}
	want := sum(lines)
	require.Len(t, want, 3)
	require.Equal(t, -1, differ(want, sum(slices.Clone(lines))))
	for i := range lines {
		other := slices.Clone(lines)
		other[i] += "!"
		require.Equal(t, i/partLines, differ(want, sum(other)))
		require.Equal(t, i/partLines, differ(want, sum(lines[:i])))
		require.Equal(t, i/partLines, differ(sum(lines[:i]), want))
	}
	require.Equal(t, 2, differ(want, sum(append(slices.Clone(lines), "more"))))
	s := &Sums{golden: map[string]string{"one": strings.Join(want, " ")}}
	require.True(t, s.Same("one", lines))
	require.False(t, s.Same("one", lines[1:]))
	require.False(t, s.Same("other", lines))
}
