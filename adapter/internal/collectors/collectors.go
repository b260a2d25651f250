// Package collectors has the metrics of several parts be one collector.
package collectors

import "github.com/prometheus/client_golang/prometheus"

// All are collected one after the other.
type All []prometheus.Collector

// Describe implements [prometheus.Collector].
func (a All) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range a {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (a All) Collect(ch chan<- prometheus.Metric) {
	for _, c := range a {
		c.Collect(ch)
	}
}
