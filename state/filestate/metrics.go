package filestate

import "github.com/prometheus/client_golang/prometheus"

// Collector returns metrics of s, computed from its Stats when they are asked for.
// Their names begin with the namespace and "_state". The caller registers it on a
// registry of its own.
func (s *Store) Collector(namespace string) prometheus.Collector {
	c := &collector{store: s}
	add := func(name, help string, typ prometheus.ValueType, of func(Stats) float64) {
		desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "state", name), help, nil, nil)
		c.metrics = append(c.metrics, metric{desc, typ, of})
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	add("keys", "Keys that have a value.", gauge, func(s Stats) float64 { return float64(s.Keys) })
	add("bytes", "Lengths of all keys and values.", gauge, func(s Stats) float64 { return float64(s.Bytes) })
	add("log_bytes", "Length of the log.", gauge, func(s Stats) float64 { return float64(s.File) })
	add("set_aside", "Damaged parts of the log that were found at the start.", gauge, func(s Stats) float64 { return float64(s.SetAside) })
	add("writes_total", "Changes made durable.", counter, func(s Stats) float64 { return float64(s.Writes) })
	add("syncs_total", "Syncs of a log.", counter, func(s Stats) float64 { return float64(s.Syncs) })
	add("rewrites_total", "Logs written anew.", counter, func(s Stats) float64 { return float64(s.Rewrites) })
	add("failures_total", "Groups of writes that failed.", counter, func(s Stats) float64 { return float64(s.Failures) })
	add("refused_total", "Writes that did not fit.", counter, func(s Stats) float64 { return float64(s.Refused) })
	return c
}

type collector struct {
	store   *Store
	metrics []metric
}

type metric struct {
	desc *prometheus.Desc
	typ  prometheus.ValueType
	of   func(Stats) float64
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.store.Stats()
	for _, m := range c.metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.typ, m.of(s))
	}
}
