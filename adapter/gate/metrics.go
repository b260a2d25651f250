package gate

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync/limit"
)

// Collector returns the metrics, computed on each scrape. The caller registers it. Their names
// begin with namespace, if it is not empty.
func (g *Gate) Collector(namespace string) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "gate", name), help, labels, nil)
	}
	return &collector{
		g:           g,
		connections: desc("connections", "Number of open websockets."),
		clients:     desc("clients", "Number of clients with an open websocket."),
		queued:      desc("queued_bytes", "Bytes that wait to be written to clients or are being written."),
		taken:       desc("slots_in_use", "Number of used slots by shared resource.", "resource"),
		waiting:     desc("waiting", "Number of messages that wait for a slot by shared resource.", "resource"),
		refused:     desc("refused_total", "Total refused requests by exhausted resource.", "resource"),
		hungUp:      desc("disconnects_total", "Total websockets closed by the server by reason.", "reason"),
	}
}

type collector struct {
	g                                                             *Gate
	connections, clients, queued, taken, waiting, refused, hungUp *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.connections, c.clients, c.queued, c.taken, c.waiting, c.refused, c.hungUp} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	g := c.g
	connections, clients := 0, make(map[limit.Stranger]struct{})
	for _, o := range g.all() {
		clients[o.who] = struct{}{}
		connections++
	}
	gauge(c.connections, connections)
	gauge(c.clients, len(clients))
	gauge(c.queued, int(g.queued.Load()))
	listening, reconciliations := g.live.sizes()
	gauge(c.taken, listening, "listening")
	gauge(c.taken, reconciliations, "reconciliations")
	for of, s := range map[string]*limit.Slots{"work": g.work, "events": g.events, "body_bytes": g.bodies} {
		taken, waiting := s.Stats()
		gauge(c.taken, int(taken), of)
		gauge(c.waiting, waiting, of)
	}
	g.mu.Lock()
	counts := maps.Clone(g.counts)
	g.mu.Unlock()
	for d, which := range map[*prometheus.Desc][]string{
		c.refused: {refusedListening, refusedNegs},
		c.hungUp:  {hungUpRoom, hungUpSlow, hungUpQuiet},
	} {
		for _, what := range which {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(counts[what]), what)
		}
	}
}
