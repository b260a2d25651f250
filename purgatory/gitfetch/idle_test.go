package gitfetch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// idle checks that nobody has the right to run git any more, or waits for it, or is counted
// as one who fetches or maintains: every test ends with that, since who is forgotten there
// keeps others out for good.
func (f *Fetcher) idle(t testing.TB) {
	t.Helper()
	c := f.git.children
	c.mu.Lock()
	require.Zero(t, c.running)
	require.Zero(t, c.walks)
	require.Zero(t, c.long)
	require.Empty(t, c.busy)
	require.Empty(t, c.waiting)
	c.mu.Unlock()
	require.Empty(t, f.receiver.fetching)
	require.Empty(t, f.receiver.long)
	require.Empty(t, f.maintainer.slots)
	f.maintainer.mu.Lock()
	require.Empty(t, f.maintainer.busy)
	f.maintainer.mu.Unlock()
}
