package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Up to eight times MaxDials older attempts may continue, at most a third of the connections.
func TestSilentMost(t *testing.T) {
	for _, c := range []struct{ dials, connections, want int }{{1, 300, 8}, {12, 300, 96}, {13, 300, 100}, {13, 312, 104}, {100, 10, 3}} {
		d := &dialer{core: &core{cfg: Config{MaxDials: c.dials, MaxConnections: c.connections}}}
		require.Equal(t, c.want, d.silentMost(), c)
	}
}
