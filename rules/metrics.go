package rules

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of a RuleSet. The caller registers them.
func (b *RuleSet) Collector(namespace string) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: namespace, Subsystem: "rules", Name: "failures_total", Help: "Total commands of the operator that could not be saved.",
	}, func() float64 { return float64(b.failed.Load()) })
}
