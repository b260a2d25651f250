package state

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of d. Their names begin with the namespace and "_state".
func (d *DB) Collector(namespace string) prometheus.Collector {
	gauge := func(name, help string, of func(Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Subsystem: "state", Name: name, Help: help},
			func() float64 { return of(d.Stats()) })
	}
	counter := func(name, help string, of func(Stats) uint64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Subsystem: "state", Name: name, Help: help},
			func() float64 { return float64(of(d.Stats())) })
	}
	return collectors{
		gauge("keys", "Number of records.", func(s Stats) float64 { return float64(s.Keys) }),
		gauge("bytes", "Bytes of all keys and values.", func(s Stats) float64 { return float64(s.Bytes) }),
		gauge("file_bytes", "Bytes of the file that are in use.", func(s Stats) float64 { return float64(s.File) }),
		gauge("damaged_files", "Number of damaged files that were set aside at the start.", func(s Stats) float64 { return float64(s.SetAside) }),
		counter("writes_total", "Total records stored or deleted.", func(s Stats) uint64 { return s.Writes }),
		counter("failures_total", "Total transactions that failed.", func(s Stats) uint64 { return s.Failures }),
		counter("refused_total", "Total batches of records refused because the store is full.", func(s Stats) uint64 { return s.Refused }),
	}
}

type collectors []prometheus.Collector

func (all collectors) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range all {
		c.Describe(ch)
	}
}

func (all collectors) Collect(ch chan<- prometheus.Metric) {
	for _, c := range all {
		c.Collect(ch)
	}
}
