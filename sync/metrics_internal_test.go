package sync

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// Each number of a status is where a dashboard looks for it, of relays with a label of their
// own, of the others together and of those that are forgotten.
func TestMetricsTellOfAll(t *testing.T) {
	relay := func(name string, n uint64, labelled bool, phase plan.Phase, state health.State) RelayStatus {
		u, err := graspsync.ParseRelayURL("wss://" + name + ".example")
		require.NoError(t, err)
		return RelayStatus{
			URL: u, labelled: labelled, phase: phase, Phase: phase.String(), health: state, Failures: int(n) + 1, Gaps: n + 2, Lasting: n + 3, //nolint:gosec // small
			Lacks: int(n) + 4, UptimeShare: float64(n+5) / 1_000, Disconnects: n + 6, Reconnects: n + 7, Connects: n + 8, FailedAttempts: n + 9, //nolint:gosec // small
		}
	}
	own := func(name string, n, phase, state float64) map[string]float64 {
		label := fmt.Sprintf("{relay=wss://%s.example}", name)
		return map[string]float64{
			"relay_connected" + label: phase, "relay_status" + label: state, "relay_failures" + label: n + 1,
			"gap_events_total" + label: n + 2, "lasting_gap_events_total" + label: n + 3, "relay_lacking_events" + label: n + 4,
			"relay_uptime_ratio" + label: (n + 5) / 1_000, "disconnects_total" + label: n + 6, "reconnects_total" + label: n + 7,
			"connection_attempts_total" + strings.Replace(label, "}", ",result=success}", 1): n + 8,
			"connection_attempts_total" + strings.Replace(label, "}", ",result=failure}", 1): n + 9,
		}
	}
	others := func(sum, count float64) map[string]float64 {
		return map[string]float64{
			"gap_events_total{relay=other}": sum + 2*count, "lasting_gap_events_total{relay=other}": sum + 3*count,
			"disconnects_total{relay=other}": sum + 6*count, "reconnects_total{relay=other}": sum + 7*count,
			"connection_attempts_total{relay=other,result=success}": sum + 8*count,
			"connection_attempts_total{relay=other,result=failure}": sum + 9*count,
		}
	}
	a, b := relay("a", 100, true, plan.Live, health.Healthy), relay("b", 200, true, plan.Disconnected, health.Dead)
	c, d := relay("c", 300, false, plan.Syncing, health.Degraded), relay("d", 400, false, plan.Connecting, health.Dead)
	gone := relay("gone", 1_000, false, 0, 0)
	for name, tc := range map[string]struct {
		relays                   []RelayStatus
		gone                     RelayStatus
		goneAny                  bool
		want                     []map[string]float64
		tracked, connected, dead float64
	}{
		"nobody":                {},
		"labelled":              {relays: []RelayStatus{a, b}, want: []map[string]float64{own("a", 100, 3, 1), own("b", 200, 0, 4)}, tracked: 2, connected: 1, dead: 1},
		"one without label":     {relays: []RelayStatus{c}, want: []map[string]float64{others(300, 1)}, tracked: 1, connected: 1},
		"all sorts":             {relays: []RelayStatus{d, a, c}, want: []map[string]float64{own("a", 100, 3, 1), others(700, 2)}, tracked: 3, connected: 2, dead: 1},
		"some are gone":         {relays: []RelayStatus{b, c}, gone: gone, goneAny: true, want: []map[string]float64{own("b", 200, 0, 4), others(1_300, 2)}, tracked: 2, connected: 1, dead: 1},
		"all others are gone":   {relays: []RelayStatus{a}, gone: gone, goneAny: true, want: []map[string]float64{own("a", 100, 3, 1), others(1_000, 1)}, tracked: 1, connected: 1},
		"gone without counting": {goneAny: true, want: []map[string]float64{others(0, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSaidBench(t, &saidPolicy{})
			for k := range m.report.sources {
				m.report.sources[k].Store(uint64(10 + k)) //nolint:gosec // small
			}
			s := &Status{Relays: tc.relays, gone: tc.gone, goneAny: tc.goneAny, last: true, Events: EventStatus{
				Claimed: 19, Lapsed: 20, InFlight: 21, Waiting: 22, Rejected: map[string]uint64{"x": 23, "y": 24}, Dropped: map[string]uint64{"z": 25},
				Panics: map[string]uint64{"store": 26}, Learned: map[string]uint64{"page_size": 27},
			}}
			m.snapshot.Store(s)
			want := map[string]float64{
				"events_total{source=direct}": 10, "events_total{source=live}": 11, "events_total{source=catchup}": 12,
				"events_total{source=daily}": 13, "events_synced_total": 36,
				"relays_tracked_total": tc.tracked, "relays_connected_total": tc.connected, "relays_dead_total": tc.dead,
				"claimed_ids_total": 19, "claims_lapsed_total": 20, "events_in_flight": 21, "events_waiting": 22, "events_rejected_total{reason=x}": 23, "events_rejected_total{reason=y}": 24,
				"dropped_total{reason=z}": 25, "panics_total{where=store}": 26, "learned_total{fact=page_size}": 27, "synced": 0,
			}
			for _, more := range tc.want {
				maps.Copy(want, more)
			}
			got, names := gathered(t, m.Collector("ngit"))
			require.Equal(t, want, got)
			described := make(chan *prometheus.Desc, 100)
			m.Collector("ngit").Describe(described)
			require.Len(t, described, 26)
			for range 26 {
				text := (<-described).String()
				names = slices.DeleteFunc(names, func(n string) bool { return strings.Contains(text, `"`+n+`"`) })
			}
			require.Empty(t, names, "what is collected was described")
		})
	}
}

// gathered returns all values, by name and labels, and the full names.
func gathered(t *testing.T, c prometheus.Collector) (values map[string]float64, names []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	values = make(map[string]float64)
	for _, f := range families {
		names = append(names, f.GetName())
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := strings.TrimPrefix(f.GetName(), "ngit_sync_")
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType().String() {
			case "COUNTER":
				values[key] = m.GetCounter().GetValue()
			case "GAUGE":
				values[key] = m.GetGauge().GetValue()
			default:
				t.Fatalf("%s is %v", key, f.GetType())
			}
		}
	}
	return values, names
}
