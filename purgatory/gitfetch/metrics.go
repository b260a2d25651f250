package gitfetch

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns a metric that is 1 and has the version of git for a label. The
// caller registers it on a registry of its own. namespace goes before its name,
// without an underscore; it may be empty.
func (f *Fetcher) Collector(namespace string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "purgatory", Name: "git_info", Help: "The git that is used.",
		ConstLabels: prometheus.Labels{"version": strings.TrimPrefix(f.version, "git version ")},
	}, func() float64 { return 1 })
}
