package grasp

import "github.com/prometheus/client_golang/prometheus"

// Collector has the metrics of all parts, for a registry of the caller's. namespace goes before
// their names, without an underscore; those of the purgatory have the names that operators know,
// without it. What Config.State keeps has a collector of its own.
func (s *Server) Collector(namespace string) prometheus.Collector {
	return parts{
		s.sync.Collector(namespace), s.purgatory.Collector(""), s.fetcher.Collector(namespace), s.git.Collector(namespace),
		s.Staging().Collector(namespace), s.gate.Collector(namespace), s.readiness.collector(namespace),
		s.commands.Rules().Collector(namespace), s.commands.Collector(namespace),
	}
}

// parts are collected one after the other.
type parts []prometheus.Collector

// Describe implements [prometheus.Collector].
func (p parts) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range p {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (p parts) Collect(ch chan<- prometheus.Metric) {
	for _, c := range p {
		c.Collect(ch)
	}
}
