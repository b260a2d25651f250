package state

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of d. Their names begin with the namespace and "_state".
func (d *DB) Collector(namespace string) prometheus.Collector {
	all := prometheus.NewRegistry()
	gauge := func(name, help string, of func(Stats) int64) {
		all.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Subsystem: "state", Name: name, Help: help},
			func() float64 { return float64(of(d.Stats())) }))
	}
	counter := func(name, help string, of func(Stats) uint64) {
		all.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Subsystem: "state", Name: name, Help: help},
			func() float64 { return float64(of(d.Stats())) }))
	}
	gauge("keys", "Number of records.", func(s Stats) int64 { return int64(s.Keys) })
	gauge("bytes", "Bytes of all keys and values.", func(s Stats) int64 { return s.Bytes })
	gauge("file_bytes", "Bytes of the file that are in use.", func(s Stats) int64 { return s.File })
	gauge("damaged_files", "Number of damaged files that were set aside at the start.", func(s Stats) int64 { return int64(s.SetAside) })
	counter("failures_total", "Total transactions that failed.", func(s Stats) uint64 { return s.Failures })
	counter("refused_total", "Total batches of records refused because the store is full.", func(s Stats) uint64 { return s.Refused })
	return all
}
