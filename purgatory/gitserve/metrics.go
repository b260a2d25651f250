package gitserve

import (
	"github.com/prometheus/client_golang/prometheus"
)

type collector struct {
	h                                                                     *Handler
	open, running, waiting, refused, pushes, yielded, locks, free, absent *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.open, c.running, c.waiting, c.refused, c.pushes, c.yielded, c.locks, c.free, c.absent} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	use := func(d *prometheus.Desc, s *slots, kind, what string) {
		used, waiting := s.Stats()
		gauge(d, float64(used), kind)
		gauge(c.waiting, float64(waiting), kind, what)
		counter(c.refused, float64(s.refused.Load()), kind, what)
	}
	for kind, r := range map[string]*requests{"push": c.h.pushes, "fetch": c.h.fetches, "ask": c.h.asks} {
		use(c.open, r.open, kind, "room")
		use(c.running, r.processes, kind, "run")
		counter(c.yielded, float64(r.count()), kind)
	}
	use(c.running, c.h.staging, "stage", "run")
	for reason, n := range c.h.refusals.count() {
		counter(c.pushes, float64(n), reason)
	}
	counter(c.absent, float64(c.h.failures.absent.Load()))
	counter(c.locks, float64(c.h.locks.Load())/1e9)
	if free, err := c.h.disk.free(c.h.repos.dir); err == nil { // else there is nothing to say
		gauge(c.free, float64(free))
	}
}
