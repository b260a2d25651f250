package grasp_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// The metrics of all parts fit in one registry.
func TestCollector(t *testing.T) {
	r, _, _ := newRig(t)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(r.server.Collector("x")))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, begins := range []string{"x_sync_", "purgatory_", "x_git_info", "x_gitserve_", "x_staging_", "x_gate_"} {
		n := 0
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), begins) {
				n++
			}
		}
		require.NotZero(t, n, begins)
	}
}
