package reference

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
)

var described = regexp.MustCompile(`^Desc\{fqName: "(.*?)", help: "(.*?)", unit: ".*?", constLabels: \{(.*?)\}, variableLabels: \{(.*?)\}\}$`)

// TestMetrics checks that docs/metrics.md contains each metric of a GRASP server as its collectors
// describe it.
func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	records, err := state.Open(filepath.Join(dir, "records"), state.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, records.Close()) }()
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	relay := khatru.NewRelay()
	server, err := grasp.New(t.Context(), relay, db, identity, grasp.Config{Dir: filepath.Join(dir, "git"), State: records})
	require.NoError(t, err)
	defer server.Close()

	var out strings.Builder
	seen := make(map[string]bool)
	for _, c := range []struct {
		of        string
		collector prometheus.Collector
	}{
		{"SyncManager.Collector", server.Sync().Collector("ngit")},
		{"Purgatory.Collector", server.Purgatory().Collector("")},
		{"gitfetch.Fetcher.Collector", server.Fetcher().Collector("ngit")},
		{"gitserve.Handler.Collector", server.GitHandler().Collector("ngit")},
		{"gitserve.Staging.Collector", server.Staging().Collector("ngit")},
		{"gate.Gate.Collector", server.Gate().Collector("ngit")},
		{"state.DB.Collector", records.Collector("ngit")},
		{"grasp.Server.Collector, in addition", server.Collector("ngit")},
	} {
		fmt.Fprintf(&out, "\n### %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", c.of)
		ch := make(chan *prometheus.Desc, 1000)
		c.collector.Describe(ch)
		close(ch)
		var lines []string
		for d := range ch {
			m := described.FindStringSubmatch(d.String())
			require.NotNil(t, m, d.String())
			if seen[m[1]] {
				continue
			}
			seen[m[1]] = true
			kind := "gauge"
			if strings.HasSuffix(m[1], "_total") && !strings.HasPrefix(m[1], "ngit_sync_relays_") {
				kind = "counter" // relays_tracked_total and similar gauges keep their names because of dashboards
			}
			labels := strings.ReplaceAll(m[4], ",", ", ")
			if name, _, ok := strings.Cut(m[3], "="); ok {
				labels = strings.TrimSpace(name)
			}
			lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |\n", m[1], kind, labels, cell(m[2])))
		}
		slices.Sort(lines)
		out.WriteString(strings.Join(lines, ""))
	}
	generated(t, "metrics.md", out.String())
}
