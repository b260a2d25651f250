package sync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
)

// otherRelays is the label of the relays beyond constants.MaxLabels.
const otherRelays = "other"

// metric is a series for each relay, or one for all.
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
			relay("relay_connected", "0 disconnected, 1 connecting, 2 syncing, 3 connected, 4 connected with historic failures.",
				gauge, func(r RelayStatus) float64 { return float64(r.phase) }),
			relay("relay_status", "1 healthy, 2 disconnected, 3 degraded, 4 dead, 5 rate limited.",
				gauge, func(r RelayStatus) float64 { return float64(r.health) }),
			relay("relay_failures", "Failures in a row.",
				gauge, func(r RelayStatus) float64 { return float64(r.Failures) }),
			relay("gap_events_total", "Events found by history that a live subscription should have brought.",
				counter, func(r RelayStatus) float64 { return count(r.Gaps) }),
			relay("lasting_gap_events_total", "Of these, found by the daily pass only.",
				counter, func(r RelayStatus) float64 { return count(r.Lasting) }),
			relay("relay_lacking_events", "Events that we have and the relay lacks, as of its last pass.",
				gauge, func(r RelayStatus) float64 { return float64(r.Lacks) }),
			relay("relay_uptime_ratio", "Share of the time since the first attempt that the relay was connected.",
				gauge, func(r RelayStatus) float64 { return r.UptimeShare }),
			relay("disconnects_total", "Connections lost.",
				counter, func(r RelayStatus) float64 { return count(r.Disconnects) }),
			relay("reconnects_total", "Connections made anew.",
				counter, func(r RelayStatus) float64 { return count(r.Reconnects) }),
		},
		attempts:  desc("connection_attempts_total", "Connection attempts.", "relay", "result"),
		sources:   desc("events_total", "Events newly stored, by the way they came.", "source"),
		synced:    desc("events_synced_total", "Events newly stored by sync."),
		tracked:   desc("relays_tracked_total", "Relays known."),
		connected: desc("relays_connected_total", "Relays connected."),
		dead:      desc("relays_dead_total", "Relays that have failed for a day."),
		rejected:  desc("events_rejected_total", "Events that the policy, or the relay itself, rejected.", "reason"),
		dropped:   desc("dropped_total", "What a bound dropped.", "reason"),
		claimed:   desc("claimed_ids_total", "Ids that one relay was asked for, and no other meanwhile."),
		lapsed:    desc("claims_lapsed_total", "Times that a relay sent too little of what it was asked for, so that others were."),
		inFlight:  desc("events_in_flight", "Events on their way into the store."),
		waiting:   desc("events_waiting", "Events that wait for what they depend on."),
		panics:    desc("panics_total", "Panics that were contained, by whose code it was.", "where"),
		learned:   desc("learned_total", "Facts that relays taught about themselves.", "fact"),
		failures:  desc("dependency_failures_total", "Total failed calls to the store, the policy and other dependencies.", "dependency"),
		isSynced:  desc("synced", "1 if no event and no git data is missing that could be fetched, else 0."),
		repos:     desc("repositories", "Number of announced repositories, by what is known of their git data.", "git"),
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

// collectRelays gives relays series of their own, up to the bound: strangers decide
// how many relays there are. Of the others only the counters mean anything together.
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
