package purgatory

import "github.com/prometheus/client_golang/prometheus"

// metrics are all metrics: name, help, and an optional label.
var metrics = [][]string{
	{"sync_queue_size", "Number of repositories whose git data is being fetched or waits for a fetch."},
	{"sync_attempts_total", "Total requests for git data by result.", "result"},
	{"sync_oids_fetched_total", "Total received objects that were missing."},
	{"domain_in_flight", "Number of requests in flight.", "domain"},
	{"domain_requests_total", "Total requests for git data.", "domain"},
	{"waiting", "Number of events held for git data by class.", "class"},
	{"ended_total", "Total events that are no longer held by reason.", "reason"},
	{"fetched_bytes_total", "Total received bytes of git data."},
	{"dropped_total", "Total items that were dropped because of a limit.", "reason"},
	{"panics_total", "Total contained panics by component.", "component"},
	{"dependency_failures_total", "Total failed calls to the relay, git, the repositories and the store.", "dependency"},
	{"departures_unconfirmed", "Number of repositories without an announcement that stay in service until the operator confirms that they leave."},
	{"maintenance_due", "Number of repositories that wait for maintenance."},
	{"maintenance_runs_total", "Total maintenance runs by result.", "result"},
	{"packs", "Number of packs in all repositories after the last complete round of maintenance."},
}

type collector struct {
	status func() Status
	report *report
	descs  map[string]*prometheus.Desc
}

func newCollector(status func() Status, report *report, namespace string) *collector {
	c := &collector{status: status, report: report, descs: make(map[string]*prometheus.Desc)}
	for _, m := range metrics {
		c.descs[m[0]] = prometheus.NewDesc(prometheus.BuildFQName(namespace, "purgatory", m[0]), m[1], m[2:], nil)
	}
	return c
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.status()
	send := func(name string, typ prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[name], typ, v, labels...)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	send("sync_queue_size", gauge, float64(st.Queue))
	send("sync_attempts_total", counter, float64(st.Fetches-st.Failed), "success")
	send("sync_attempts_total", counter, float64(st.Failed), "failure")
	send("sync_oids_fetched_total", counter, float64(st.Objects))
	send("fetched_bytes_total", counter, float64(st.Fetched))
	send("departures_unconfirmed", gauge, float64(st.Unconfirmed))
	m := st.Maintenance
	send("maintenance_due", gauge, float64(m.Due))
	send("maintenance_runs_total", counter, float64(m.Runs-m.Failed), "success")
	send("maintenance_runs_total", counter, float64(m.Failed), "failure")
	send("packs", gauge, float64(m.Packs))
	for class, n := range map[string]int{
		"announcement": st.Announcements, "state": st.States, "pull_request": st.PullRequests, "maintainer_announcement": st.MaintainerAnnouncements,
	} {
		send("waiting", gauge, float64(n), class)
	}
	for reason, n := range st.Ended {
		send("ended_total", counter, float64(n), string(reason))
	}
	for reason, n := range st.Dropped {
		send("dropped_total", counter, float64(n), reason)
	}
	for whose, n := range st.Panics {
		send("panics_total", counter, float64(n), whose)
	}
	for of, n := range c.report.failing.Totals() {
		send("dependency_failures_total", counter, float64(n), of)
	}
	for _, d := range st.Domains {
		send("domain_in_flight", gauge, float64(d.InFlight), d.Domain)
		send("domain_requests_total", counter, float64(d.Requests), d.Domain)
	}
}
