package sync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
)

// otherRelays is the label of the relays beyond constants.MaxLabels.
const otherRelays = "other"

// metric is a metric with a series for each relay, or with one series.
type metric struct {
	desc *prometheus.Desc
	typ  prometheus.ValueType
	of   func(RelayStatus) float64
}

type collector struct {
	status    func() Status
	bySource  func() map[string]uint64
	totals    func() map[string]uint64 // failures by dependency
	perRelay  []metric
	attempts  *prometheus.Desc
	sources   *prometheus.Desc
	synced    *prometheus.Desc
	tracked   *prometheus.Desc
	connected *prometheus.Desc
	dead      *prometheus.Desc
	rejected  *prometheus.Desc
	dropped   *prometheus.Desc
	claimed   *prometheus.Desc
	lapsed    *prometheus.Desc
	inFlight  *prometheus.Desc
	waiting   *prometheus.Desc
	panics    *prometheus.Desc
	learned   *prometheus.Desc
	failures  *prometheus.Desc
	isSynced  *prometheus.Desc
	repos     *prometheus.Desc
}

func newCollector(namespace string, status func() Status, bySource, totals func() map[string]uint64) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "sync", name), help, labels, nil)
	}
	count := func(n uint64) float64 { return float64(n) }
	relay := func(name, help string, typ prometheus.ValueType, of func(RelayStatus) float64) metric {
		return metric{desc(name, help, "relay"), typ, of}
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	return &collector{
		status: status, bySource: bySource, totals: totals,
		perRelay: []metric{
			relay("relay_connected", "Phase of the connection. 0 is disconnected, 1 connecting, 2 syncing, 3 live, 4 live with gaps.",
				gauge, func(r RelayStatus) float64 { return float64(r.phase) }),
			relay("relay_status", "Health of the relay. 1 is healthy, 2 disconnected, 3 degraded, 4 dead, 5 rate limited.",
				gauge, func(r RelayStatus) float64 { return float64(r.health) }),
			relay("relay_failures", "Number of consecutive failures.",
				gauge, func(r RelayStatus) float64 { return float64(r.Failures) }),
			relay("gap_events_total", "Total events that arrived as history, although a live subscription should have brought them.",
				counter, func(r RelayStatus) float64 { return count(r.Gaps) }),
			relay("daily_gap_events_total", "Total events that only the daily pass found, although a live subscription should have brought them.",
				counter, func(r RelayStatus) float64 { return count(r.Lasting) }),
			relay("relay_lacking_events", "Number of stored events that the relay lacked at its last pass.",
				gauge, func(r RelayStatus) float64 { return float64(r.Lacks) }),
			relay("relay_uptime_ratio", "Connected part of the time since the first attempt, from 0 to 1.",
				gauge, func(r RelayStatus) float64 { return r.UptimeShare }),
			relay("disconnects_total", "Total lost connections.",
				counter, func(r RelayStatus) float64 { return count(r.Disconnects) }),
			relay("reconnects_total", "Total connections after the first.",
				counter, func(r RelayStatus) float64 { return count(r.Reconnects) }),
		},
		attempts:  desc("connection_attempts_total", "Total connection attempts.", "relay", "result"),
		sources:   desc("events_total", "Total newly stored events by source.", "source"),
		synced:    desc("events_synced_total", "Total events newly stored by sync."),
		tracked:   desc("relays_tracked_total", "Number of known relays."),
		connected: desc("relays_connected_total", "Number of connected relays."),
		dead:      desc("relays_dead_total", "Number of relays that have failed for a day."),
		rejected:  desc("events_rejected_total", "Total events that the policy or the relay itself rejected.", "reason"),
		dropped:   desc("dropped_total", "Total items that were dropped because of a limit.", "reason"),
		claimed:   desc("claimed_ids_total", "Total ids that were requested from one relay only, although several relays have them."),
		lapsed:    desc("claims_lapsed_total", "Total requests that brought too few of these ids, so that other relays were asked."),
		inFlight:  desc("events_in_flight", "Number of received events that are not stored or rejected yet."),
		waiting:   desc("events_waiting", "Number of events that wait for an event they depend on."),
		panics:    desc("panics_total", "Total contained panics by component.", "component"),
		learned:   desc("learned_total", "Total limits and refusals that relays taught.", "fact"),
		failures:  desc("dependency_failures_total", "Total failed calls to the store, the policy and other dependencies.", "dependency"),
		isSynced:  desc("synced", "1 if all events and git data that can be fetched are stored, otherwise 0."),
		repos:     desc("repositories", "Number of announced repositories by completeness of their git data.", "git"),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, p := range c.perRelay {
		ch <- p.desc
	}
	for _, d := range []*prometheus.Desc{
		c.attempts, c.sources, c.synced, c.tracked, c.connected, c.dead, c.rejected, c.dropped, c.claimed,
		c.lapsed, c.inFlight, c.waiting, c.panics, c.learned, c.failures, c.isSynced, c.repos,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.status()
	c.collectRelays(ch, s)
	send := func(d *prometheus.Desc, typ prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, typ, v, labels...)
	}
	var all, connected, dead float64
	for _, r := range s.Relays {
		all++
		if r.Connected() {
			connected++
		}
		if r.dead() {
			dead++
		}
	}
	send(c.tracked, prometheus.GaugeValue, all)
	send(c.connected, prometheus.GaugeValue, connected)
	send(c.dead, prometheus.GaugeValue, dead)
	send(c.claimed, prometheus.CounterValue, float64(s.Events.Claimed))
	send(c.lapsed, prometheus.CounterValue, float64(s.Events.Lapsed))
	send(c.inFlight, prometheus.GaugeValue, float64(s.Events.InFlight))
	send(c.waiting, prometheus.GaugeValue, float64(s.Events.Waiting))
	synced := 0.0
	if s.Synced {
		synced = 1
	}
	send(c.isSynced, prometheus.GaugeValue, synced)
	if s.Git.All() > 0 {
		send(c.repos, prometheus.GaugeValue, float64(s.Git.Complete), "complete")
		send(c.repos, prometheus.GaugeValue, float64(s.Git.Missing), "missing")
		send(c.repos, prometheus.GaugeValue, float64(s.Git.Unobtainable), "unobtainable")
	}
	var bySync float64
	for source, n := range c.bySource() {
		send(c.sources, prometheus.CounterValue, float64(n), source)
		if source != graspsync.Direct.String() {
			bySync += float64(n)
		}
	}
	send(c.synced, prometheus.CounterValue, bySync)
	for _, by := range []struct {
		desc   *prometheus.Desc
		counts map[string]uint64
	}{
		{c.rejected, s.Events.Rejected}, {c.dropped, s.Events.Dropped},
		{c.panics, s.Events.Panics}, {c.learned, s.Events.Learned}, {c.failures, c.totals()},
	} {
		for label, n := range by.counts {
			send(by.desc, prometheus.CounterValue, float64(n), label)
		}
	}
}

// collectRelays exports series for up to MaxLabels relays, because the number of listed relays is
// unbounded. The other relays share one label, which has counters only.
func (c *collector) collectRelays(ch chan<- prometheus.Metric, s Status) {
	own := make([]RelayStatus, 0, len(s.Relays))
	others := []RelayStatus{s.gone}
	for _, r := range s.Relays {
		if r.labelled {
			own = append(own, r)
		} else {
			others = append(others, r)
		}
	}
	shared := len(others) > 1 || s.goneAny
	for _, p := range c.perRelay {
		for _, r := range own {
			ch <- prometheus.MustNewConstMetric(p.desc, p.typ, p.of(r), r.URL.String())
		}
		if shared && p.typ == prometheus.CounterValue {
			ch <- prometheus.MustNewConstMetric(p.desc, p.typ, sum(others, p.of), otherRelays)
		}
	}
	for i := range own {
		c.collectAttempts(ch, own[i:i+1], own[i].URL.String())
	}
	if shared {
		c.collectAttempts(ch, others, otherRelays)
	}
}

func (c *collector) collectAttempts(ch chan<- prometheus.Metric, relays []RelayStatus, label string) {
	for result, of := range map[string]func(RelayStatus) float64{
		"success": func(r RelayStatus) float64 { return float64(r.Connects) },
		"failure": func(r RelayStatus) float64 { return float64(r.FailedAttempts) },
	} {
		ch <- prometheus.MustNewConstMetric(c.attempts, prometheus.CounterValue, sum(relays, of), label, result)
	}
}

func sum(relays []RelayStatus, of func(RelayStatus) float64) (total float64) {
	for _, r := range relays {
		total += of(r)
	}
	return total
}
