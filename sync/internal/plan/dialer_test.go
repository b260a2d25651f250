package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Eight times as many attempts as are made at once may wait on, but no more than a third of
// the connections.
func TestSilentMost(t *testing.T) {
	for _, c := range []struct{ dials, connections, want int }{{1, 300, 8}, {12, 300, 96}, {13, 300, 100}, {13, 312, 104}, {100, 10, 3}} {
		d := &dialer{core: &core{cfg: Config{MaxDials: c.dials, MaxConnections: c.connections}}}
		require.Equal(t, c.want, d.silentMost(), c)
	}
}
