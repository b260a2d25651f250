package filestate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
)

func TestMetrics(t *testing.T) {
	s := openDisk(t, newDisk(rand.New(rand.NewPCG(0, 0))))
	_, err := s.CompareAndSwap(t.Context(), "abc", state.Absent, make([]byte, 7))
	require.NoError(t, err)
	c := s.Collector("ngit")
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP ngit_state_bytes Lengths of all keys and values.
# TYPE ngit_state_bytes gauge
ngit_state_bytes 10
# HELP ngit_state_writes_total Changes made durable.
# TYPE ngit_state_writes_total counter
ngit_state_writes_total 1
# HELP ngit_state_set_aside Damaged parts of the log that were found at the start.
# TYPE ngit_state_set_aside gauge
ngit_state_set_aside 0
`), "ngit_state_bytes", "ngit_state_writes_total", "ngit_state_set_aside"))
	s.mu.Lock()
	before := s.stats
	s.stats = Stats{
		File: 3, Writes: 4, Syncs: 5, Rewrites: 6, Failures: 7, Refused: 8,
		SetAside: 9, SetAsideBytes: 10, Torn: 11,
	}
	s.mu.Unlock()
	got := make(map[string]float64)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	require.NoError(t, err)
	s.mu.Lock()
	s.stats = before
	s.mu.Unlock()
	for _, f := range families {
		m := f.GetMetric()[0]
		got[f.GetName()+" "+f.GetType().String()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	require.Equal(t, map[string]float64{
		"ngit_state_keys GAUGE": 1, "ngit_state_bytes GAUGE": 10, "ngit_state_log_bytes GAUGE": 3,
		"ngit_state_set_aside GAUGE": 9, "ngit_state_writes_total COUNTER": 4, "ngit_state_syncs_total COUNTER": 5,
		"ngit_state_rewrites_total COUNTER": 6, "ngit_state_failures_total COUNTER": 7, "ngit_state_refused_total COUNTER": 8,
	}, got)
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// A restart with 150,000 records.
func BenchmarkOpen(b *testing.B) {
	data := appendFileHead(nil, 1, 0)
	for i := range 150_000 {
		data = appendRecord(data, 1, record{
			version: state.Version(i + 1), kind: put, key: fmt.Sprintf("sync/health/wss://relay%d.example.com", i), value: make([]byte, 500),
		})
	}
	dir := b.TempDir()
	folder, err := openFolder(dir)
	require.NoError(b, err)
	f, err := folder.Create(logName)
	require.NoError(b, err)
	_, err = f.Write(data)
	require.NoError(b, err)
	require.NoError(b, f.Close())
	require.NoError(b, folder.Close())
	for b.Loop() {
		s, err := Open(dir, Config{})
		require.NoError(b, err)
		require.Equal(b, 150_000, s.Stats().Keys)
		require.NoError(b, s.Close())
	}
}
