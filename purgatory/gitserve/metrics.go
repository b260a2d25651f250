package gitserve

import (
	"github.com/prometheus/client_golang/prometheus"
)

type collector struct {
	h                                                                                  *Handler
	visits, running, waiting, waited, refused, pushes, shed, kept, locks, free, absent *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.visits, c.running, c.waiting, c.waited, c.refused, c.pushes, c.shed, c.kept, c.locks, c.free, c.absent} {
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
	wait := func(p *places, kind, what string) (taken int) {
		s := p.stats()
		gauge(c.waiting, float64(s.waiting), kind, what)
		counter(c.waited, s.waited.Seconds(), kind, what)
		counter(c.refused, float64(s.refused), kind, what)
		return s.taken
	}
	for kind, l := range map[string]lane{"push": c.h.pushes, "fetch": c.h.fetches, "ask": c.h.asks} {
		here, kept, shed := l.visits.count()
		gauge(c.visits, float64(here), kind)
		gauge(c.kept, float64(kept), kind)
		counter(c.shed, float64(shed), kind)
		wait(l.visits.room, kind, "room")
		gauge(c.running, float64(wait(l.places, kind, "run")), kind)
	}
	gauge(c.running, float64(wait(c.h.staging, "stage", "run")), "stage")
	for reason, n := range c.h.refusals.count() {
		counter(c.pushes, float64(n), reason)
	}
	counter(c.absent, float64(c.h.failures.absent.Load()))
	counter(c.locks, float64(c.h.locks.Load())/1e9)
	if free, err := c.h.disk.free(c.h.repos.dir); err == nil { // else there is nothing to say
		gauge(c.free, float64(free))
	}
}
