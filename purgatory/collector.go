package purgatory

import "github.com/prometheus/client_golang/prometheus"

// collector tells the metrics, of the status at that moment.
type collector struct {
	status                                    func() Status
	report                                    *report
	queue, attempts, oids, inFlight, requests *prometheus.Desc
	waiting, fates, bytes, dropped, panics    *prometheus.Desc
	unconfirmed, failures                     *prometheus.Desc

	upkeepDue, upkeepRuns, upkeepSeconds, upkeepFreed, upkeepRemoved, packs, looseRefs *prometheus.Desc
}

func newCollector(status func() Status, report *report, namespace string) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "purgatory", name), help, labels, nil)
	}
	return &collector{
		status: status, report: report,
		queue:    desc("sync_queue_size", "Number of repositories whose git data is being fetched or waits for a fetch."),
		attempts: desc("sync_attempts_total", "Total requests for git data by result.", "result"),
		oids:     desc("sync_oids_fetched_total", "Total received objects that were missing."),
		inFlight: desc("domain_in_flight", "Number of requests in flight.", "domain"),
		requests: desc("domain_requests_total", "Total requests for git data.", "domain"),
		waiting:  desc("waiting", "Number of events held for git data by class.", "class"),
		fates:    desc("ended_total", "Total events that are no longer held by reason.", "fate"),
		bytes:    desc("fetched_bytes_total", "Total received bytes of git data."),
		dropped:  desc("dropped_total", "Total items that were dropped because of a limit.", "reason"),
		panics:   desc("panics_total", "Total contained panics by component.", "where"),

		failures:    desc("dependency_failures_total", "Total failed calls to the relay, git, the repositories and the store.", "dependency"),
		unconfirmed: desc("departures_unconfirmed", "Number of repositories without an announcement that stay in service until the operator confirms that they leave."),

		upkeepDue:     desc("maintenance_due", "Number of repositories that wait for maintenance."),
		upkeepRuns:    desc("maintenance_runs_total", "Total maintenance runs by result.", "result"),
		upkeepSeconds: desc("maintenance_seconds_total", "Total seconds of maintenance."),
		upkeepFreed:   desc("maintenance_freed_bytes", "Bytes that maintenance has freed. The value falls while two copies of objects are kept."),
		upkeepRemoved: desc("maintenance_packs_removed_total", "Total packs that were merged into others or deleted."),
		packs:         desc("packs", "Number of packs in all repositories after the last complete round of maintenance."),
		looseRefs:     desc("loose_refs", "Number of loose refs in all repositories after the last complete round of maintenance."),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.queue, c.attempts, c.oids, c.inFlight, c.requests, c.waiting, c.fates, c.bytes, c.dropped, c.panics, c.unconfirmed, c.failures,
		c.upkeepDue, c.upkeepRuns, c.upkeepSeconds, c.upkeepFreed, c.upkeepRemoved, c.packs, c.looseRefs,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.status()
	send := func(d *prometheus.Desc, typ prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, typ, v, labels...)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	send(c.queue, gauge, float64(c.report.queue.Load()))
	send(c.attempts, counter, float64(st.Fetches-st.Failed), "success")
	send(c.attempts, counter, float64(st.Failed), "failure")
	send(c.oids, counter, float64(st.Objects))
	send(c.bytes, counter, float64(st.Fetched))
	send(c.unconfirmed, gauge, float64(st.Unconfirmed))
	m := st.Maintenance
	send(c.upkeepDue, gauge, float64(m.Due))
	send(c.upkeepRuns, counter, float64(m.Runs-m.Failed), "success")
	send(c.upkeepRuns, counter, float64(m.Failed), "failure")
	send(c.upkeepSeconds, counter, m.Took.Seconds())
	send(c.upkeepFreed, gauge, float64(m.Freed))
	send(c.upkeepRemoved, counter, float64(m.Removed))
	send(c.packs, gauge, float64(m.Packs))
	send(c.looseRefs, gauge, float64(m.LooseRefs))
	for class, n := range map[string]int{
		"announcement": st.Announcements, "state": st.States, "pull_request": st.PullRequests, "relative": st.Relatives,
	} {
		send(c.waiting, gauge, float64(n), class)
	}
	for fate, n := range map[Fate]uint64{
		Released: st.Released, Expired: st.Expired, Replaced: st.Replaced, Deleted: st.Deleted, NotStored: st.Refused, Displaced: st.Displaced, Unwanted: st.Unwanted,
	} {
		send(c.fates, counter, float64(n), fate.String())
	}
	for reason, n := range st.Dropped {
		send(c.dropped, counter, float64(n), reason)
	}
	for whose, n := range st.Panics {
		send(c.panics, counter, float64(n), whose)
	}
	for of, n := range c.report.failing.Totals() {
		send(c.failures, counter, float64(n), of)
	}
	for domain, d := range c.report.domains() {
		send(c.inFlight, gauge, float64(d.inFlight), domain)
		send(c.requests, counter, float64(d.requests), domain)
	}
}
