package gitserve

import (
	"github.com/prometheus/client_golang/prometheus"
)

type collector struct {
	descs   []*prometheus.Desc
	collect func(metrics)
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) { c.collect(ch) }

type metrics chan<- prometheus.Metric

func (m metrics) gauge(d *prometheus.Desc, v float64, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (m metrics) counter(d *prometheus.Desc, v float64, labels ...string) {
	m <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// Collector returns the metrics, whose names begin with the namespace and "_gitserve".
func (h *Handler) Collector(namespace string) prometheus.Collector {
	c := &collector{}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(prometheus.BuildFQName(namespace, "gitserve", name), help, labels, nil)
		c.descs = append(c.descs, d)
		return d
	}
	open := desc("requests", "Number of requests that are being read, wait, or are being answered.", "kind")
	running := desc("running", "Number of git processes that answer requests.", "kind")
	waiting := desc("waiting", "Number of requests that wait for a request slot or for git.", "kind", "resource")
	refused := desc("refused_total", "Total requests refused with status 503, because no request slot or no git process was free.", "kind", "resource")
	pushes := desc("pushes_refused_total", "Total refused pushes by reason of the first refused ref.", "reason")
	yielded := desc("shed_total", "Total requests ended because their clients were slow while others waited.", "kind")
	locks := desc("lock_waited_seconds_total", "Total seconds that pushes waited for their repositories and for git processes.")
	free := desc("disk_free_bytes", "Free bytes on the disk of the repositories.")
	c.collect = func(m metrics) {
		use := func(d *prometheus.Desc, s *slots, kind, what string) {
			used, n := s.Stats()
			m.gauge(d, float64(used), kind)
			m.gauge(waiting, float64(n), kind, what)
			m.counter(refused, float64(s.refused.Load()), kind, what)
		}
		for kind, r := range map[string]*requests{"push": h.pushes, "fetch": h.fetches, "ask": h.asks, "page": h.pages} {
			use(open, r.open, kind, "room")
			use(running, r.processes, kind, "run")
			m.counter(yielded, float64(r.yielded.Load()), kind)
		}
		for reason, n := range h.log.count() {
			m.counter(pushes, float64(n), reason)
		}
		m.counter(locks, float64(h.waited.Load())/1e9)
		if bytes, err := h.free(h.repos.dir); err == nil { // otherwise the metric is omitted
			m.gauge(free, float64(bytes))
		}
	}
	return c
}
