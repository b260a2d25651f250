package state

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of d. Their names begin with the namespace and "_state".
func (d *DB) Collector(namespace string) prometheus.Collector {
	c := &collector{db: d}
	add := func(name, help string, typ prometheus.ValueType, of func(Stats) float64) {
		desc := prometheus.NewDesc(prometheus.BuildFQName(namespace, "state", name), help, nil, nil)
		c.metrics = append(c.metrics, metric{desc, typ, of})
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	add("keys", "Number of records.", gauge, func(s Stats) float64 { return float64(s.Keys) })
	add("bytes", "Bytes of all keys and values.", gauge, func(s Stats) float64 { return float64(s.Bytes) })
	add("file_bytes", "Bytes of the file that are in use.", gauge, func(s Stats) float64 { return float64(s.File) })
	add("damaged_files", "Number of damaged files that were set aside at the start.", gauge, func(s Stats) float64 { return float64(s.SetAside) })
	add("writes_total", "Total records stored or deleted.", counter, func(s Stats) float64 { return float64(s.Writes) })
	add("failures_total", "Total transactions that failed.", counter, func(s Stats) float64 { return float64(s.Failures) })
	add("refused_total", "Total batches of records refused because the store is full.", counter, func(s Stats) float64 { return float64(s.Refused) })
	return c
}

type collector struct {
	db      *DB
	metrics []metric
}

type metric struct {
	desc *prometheus.Desc
	typ  prometheus.ValueType
	of   func(Stats) float64
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.db.Stats()
	for _, m := range c.metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.typ, m.of(s))
	}
}
