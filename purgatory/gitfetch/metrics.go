package gitfetch

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
)

// Collector returns the metrics: which git is run. The caller registers it on a registry
// of its own. namespace goes before their names, without an underscore.
func (f *Fetcher) Collector(namespace string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "git", Name: "info",
		Help:        "Always 1; the version of git that is run is the label.",
		ConstLabels: prometheus.Labels{"version": graspsync.Printable(strings.TrimPrefix(f.version, "git version "))},
	}, func() float64 { return 1 })
}
