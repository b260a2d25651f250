package sync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
)

type metric struct {
	desc *prometheus.Desc
	typ  prometheus.ValueType
	// collect emits the series. top are the relays with series of their own.
	collect func(s Status, top []RelayStatus, emit func(value float64, labels ...string))
}

type collector struct {
	status  func() Status
	most    int // relays with series of their own
	metrics []metric
}

func newCollector(namespace string, most int, status func() Status, failures func() map[string]uint64) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "sync", name), help, labels, nil)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	relay := func(name, help string, typ prometheus.ValueType, of func(RelayStatus) float64) metric {
		return metric{desc(name, help, "relay"), typ, func(_ Status, top []RelayStatus, emit func(float64, ...string)) {
			for _, r := range top {
				emit(of(r), r.URL.String())
			}
		}}
	}
	one := func(name, help string, typ prometheus.ValueType, of func(Status) float64) metric {
		return metric{desc(name, help), typ, func(s Status, _ []RelayStatus, emit func(float64, ...string)) { emit(of(s)) }}
	}
	counts := func(name, help, label string, of func(Status) map[string]uint64) metric {
		return metric{desc(name, help, label), counter, func(s Status, _ []RelayStatus, emit func(float64, ...string)) {
			for value, n := range of(s) {
				emit(float64(n), value)
			}
		}}
	}
	relays := func(is func(RelayStatus) bool) func(Status) float64 {
		return func(s Status) (n float64) {
			for _, r := range s.Relays {
				n += float64(b2i(is(r)))
			}
			return n
		}
	}
	attempts := metric{
		desc("connection_attempts_total", "Total connection attempts.", "relay", "result"), counter,
		func(_ Status, top []RelayStatus, emit func(float64, ...string)) {
			for _, r := range top {
				emit(float64(r.Connects), r.URL.String(), "success")
				emit(float64(r.FailedAttempts), r.URL.String(), "failure")
			}
		},
	}
	repositories := metric{
		desc("repositories", "Number of announced repositories by completeness of their git data.", "git"), gauge,
		func(s Status, _ []RelayStatus, emit func(float64, ...string)) {
			if s.Git.All() > 0 {
				emit(float64(s.Git.Complete), "complete")
				emit(float64(s.Git.Missing), gitMissing)
				emit(float64(s.Git.Unobtainable), "unobtainable")
			}
		},
	}
	return &collector{
		status: status, most: most,
		metrics: []metric{
			attempts, repositories,
			relay("relay_connected", "Phase of the connection. 0 is disconnected, 1 connecting, 2 syncing, 3 live, 4 live with gaps.",
				gauge, func(r RelayStatus) float64 { return float64(r.phase) }),
			relay("relay_status", "Health of the relay. 1 is healthy, 2 disconnected, 3 degraded, 4 dead, 5 rate limited.",
				gauge, func(r RelayStatus) float64 { return float64(r.health) }),
			relay("relay_failures", "Number of consecutive failures.",
				gauge, func(r RelayStatus) float64 { return float64(r.Failures) }),
			relay("gap_events_total", "Total events that arrived as history, although a live subscription should have brought them.",
				counter, func(r RelayStatus) float64 { return float64(r.Gaps) }),
			relay("daily_gap_events_total", "Total events that only the daily pass found, although a live subscription should have brought them.",
				counter, func(r RelayStatus) float64 { return float64(r.Lasting) }),
			relay("relay_uptime_ratio", "Connected part of the time since the first attempt, from 0 to 1.",
				gauge, func(r RelayStatus) float64 { return r.UptimeShare }),
			relay("disconnects_total", "Total lost connections.",
				counter, func(r RelayStatus) float64 { return float64(r.Disconnects) }),
			relay("reconnects_total", "Total connections after the first.",
				counter, func(r RelayStatus) float64 { return float64(r.Reconnects) }),
			counts("events_total", "Total newly stored events by source.", "source", func(s Status) map[string]uint64 { return s.Events.Sources }),
			one("events_synced_total", "Total events newly stored by sync.",
				counter, func(s Status) float64 {
					return float64(total(s.Events.Sources) - s.Events.Sources[graspsync.Direct.String()])
				}),
			one("relays_tracked_total", "Number of known relays.", gauge, relays(func(RelayStatus) bool { return true })),
			one("relays_connected_total", "Number of connected relays.", gauge, relays(RelayStatus.Connected)),
			one("relays_dead_total", "Number of relays that have failed for a day.", gauge, relays(RelayStatus.dead)),
			counts("events_rejected_total", "Total events that the policy or the relay itself rejected.", "reason",
				func(s Status) map[string]uint64 { return s.Events.Rejected }),
			counts("dropped_total", "Total items that were dropped because of a limit.", "reason",
				func(s Status) map[string]uint64 { return s.Events.Dropped }),
			one("events_in_flight", "Number of received events that are not stored or rejected yet.",
				gauge, func(s Status) float64 { return float64(s.Events.InFlight) }),
			one("events_waiting", "Number of events that wait for an event they depend on.",
				gauge, func(s Status) float64 { return float64(s.Events.Waiting) }),
			counts("panics_total", "Total contained panics by component.", "component", func(s Status) map[string]uint64 { return s.Events.Panics }),
			counts("learned_total", "Total limits and refusals that relays taught.", "fact", func(s Status) map[string]uint64 { return s.Events.Learned }),
			counts("dependency_failures_total", "Total failed calls to the store, the policy and other dependencies.", "dependency",
				func(Status) map[string]uint64 { return failures() }),
			one("synced", "1 if all events and git data that can be fetched are stored, otherwise 0.",
				gauge, func(s Status) float64 { return float64(b2i(s.Synced)) }),
		},
	}
}

// Collect implements [prometheus.Collector]. It exports series of a limited number of relays, because
// strangers list relays.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	top := s.Relays[:min(len(s.Relays), c.most)]
	for _, m := range c.metrics {
		m.collect(s, top, func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(m.desc, m.typ, value, labels...)
		})
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}
