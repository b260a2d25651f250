package sync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		net.Add("wss://b.example", relaytest.Behavior{Down: true})
		owner := relaytest.NewCheapKey("owner")
		a.Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), "x"))
		r, _ := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
		defer r.stop()
		after(62 * time.Second)
		require.NoError(t, testutil.CollectAndCompare(r.manager.Collector("ngit"), strings.NewReader(`
# HELP ngit_sync_relay_connected Phase of the connection. 0 is disconnected, 1 connecting, 2 syncing, 3 live, 4 live with gaps.
# TYPE ngit_sync_relay_connected gauge
ngit_sync_relay_connected{relay="wss://a.example"} 3
ngit_sync_relay_connected{relay="wss://b.example"} 0
# HELP ngit_sync_relay_status Health of the relay. 1 is healthy, 2 disconnected, 3 degraded, 4 dead, 5 rate limited.
# TYPE ngit_sync_relay_status gauge
ngit_sync_relay_status{relay="wss://a.example"} 1
ngit_sync_relay_status{relay="wss://b.example"} 3
# HELP ngit_sync_events_total Total newly stored events by source.
# TYPE ngit_sync_events_total counter
ngit_sync_events_total{source="catchup"} 1
ngit_sync_events_total{source="daily"} 0
ngit_sync_events_total{source="direct"} 0
ngit_sync_events_total{source="live"} 0
# HELP ngit_sync_events_synced_total Total events newly stored by sync.
# TYPE ngit_sync_events_synced_total counter
ngit_sync_events_synced_total 1
`), "ngit_sync_relay_connected", "ngit_sync_relay_status", "ngit_sync_events_total", "ngit_sync_events_synced_total"))

		problems, err := testutil.CollectAndLint(r.manager.Collector("ngit"))
		require.NoError(t, err)
		for _, p := range problems {
			require.Contains(t, []string{
				"ngit_sync_relays_tracked_total", "ngit_sync_relays_connected_total", "ngit_sync_relays_dead_total",
			}, p.Metric, p.Text)
		}
	})
}

// The number of labels that strangers control was not limited, and the series of a forgotten relay
// remained.
func TestTrapS3_Labels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		var hosts []string
		for i := range 10 {
			hosts = append(hosts, fmt.Sprintf("r%d.example", i))
			net.Add("wss://"+hosts[i], relaytest.Behavior{Down: true})
		}
		r, owner := hosted(t, net, relaysync.Config{}.With(relaysync.Fixed{MaxLabels: 3}), hosts...)
		defer r.stop()
		after(time.Minute)
		labels := relayLabels(t, r.manager.Collector("ngit"))
		require.Len(t, labels, 3)
		r.save(owner.Hosted(at(0), "repo", us, "r0.example"))
		after(time.Minute)
		require.Equal(t, map[string]bool{"wss://r0.example": true}, relayLabels(t, r.manager.Collector("ngit")))
	})
}

func relayLabels(t *testing.T, c prometheus.Collector) map[string]bool {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	out := make(map[string]bool)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "relay" {
					out[l.GetValue()] = true
				}
			}
		}
	}
	return out
}

// Every metric passes promlint, except three gauges whose names dashboards use.
func TestMetricsLint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://b.example", relaytest.Behavior{Negentropy: relaytest.NegNotice})
		cfg := relaysync.Config{Observe: func(relaysync.Observation) { panic("no") }}.With(relaysync.Fixed{ObserveQueue: 1})
		r := playGap(t, net, cfg, 26*time.Hour)
		defer r.stop()
		owner := relaytest.NewCheapKey("owner")
		r.save(owner.Hosted(at(0), "more", us, "b.example"))
		after(time.Minute)
		for i := range 100 {
			net.Relay(relayURL(t, "wss://b.example")).Publish(owner.Hosted(at(0), fmt.Sprint(i), "elsewhere.example"))
		}
		after(time.Minute)

		c := r.manager.Collector("ngit")
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP ngit_sync_gap_events_total Total events that arrived as history, although a live subscription should have brought them.
# TYPE ngit_sync_gap_events_total counter
ngit_sync_gap_events_total{relay="wss://a.example"} 1
ngit_sync_gap_events_total{relay="wss://b.example"} 0
# HELP ngit_sync_daily_gap_events_total Total events that only the daily pass found, although a live subscription should have brought them.
# TYPE ngit_sync_daily_gap_events_total counter
ngit_sync_daily_gap_events_total{relay="wss://a.example"} 1
ngit_sync_daily_gap_events_total{relay="wss://b.example"} 0
# HELP ngit_sync_learned_total Total limits and refusals that relays taught.
# TYPE ngit_sync_learned_total counter
ngit_sync_learned_total{fact="no_negentropy"} 1
`), "ngit_sync_gap_events_total", "ngit_sync_daily_gap_events_total", "ngit_sync_learned_total"))

		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c)
		families, err := registry.Gather()
		require.NoError(t, err)
		series := make(map[string]int)
		for _, f := range families {
			series[f.GetName()] = len(f.GetMetric())
		}
		for _, name := range []string{
			"relay_connected", "relay_status", "relay_failures", "connection_attempts_total", "events_total",
			"events_synced_total", "gap_events_total", "daily_gap_events_total", "relays_tracked_total",
			"relays_connected_total", "relays_dead_total", "disconnects_total", "reconnects_total", "dropped_total",
			"panics_total", "learned_total", "events_rejected_total", "events_in_flight", "events_waiting",
			"relay_uptime_ratio", "synced", "dependency_failures_total",
		} {
			require.Positive(t, series["ngit_sync_"+name], name)
			delete(series, "ngit_sync_"+name)
		}
		require.Empty(t, series)
		require.Positive(t, r.manager.Status().Events.Dropped["observations"])

		problems, err := testutil.CollectAndLint(c)
		require.NoError(t, err)
		kept := make(map[string]bool)
		for _, p := range problems {
			kept[p.Metric] = true
		}
		require.Equal(t, map[string]bool{
			"ngit_sync_relays_tracked_total": true, "ngit_sync_relays_connected_total": true, "ngit_sync_relays_dead_total": true,
		}, kept)
	})
}
