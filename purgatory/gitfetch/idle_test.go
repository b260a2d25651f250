package gitfetch

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/limit"
)

// idle checks that nobody has the right to run git any more, or waits for it, or is counted
// as one who fetches or maintains: every test ends with that, since who is forgotten there
// keeps others out for good.
func (f *Fetcher) idle(t testing.TB) {
	t.Helper()
	for _, places := range []*limit.Slots{f.git.children, f.git.long, f.receiver.fetching, f.maintainer.places} {
		used, waiting := places.Stats()
		require.Zero(t, used)
		require.Zero(t, waiting)
	}
	f.maintainer.mu.Lock()
	require.Empty(t, f.maintainer.busy)
	f.maintainer.mu.Unlock()
}
