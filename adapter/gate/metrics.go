package gate

import (
	"maps"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync/limit"
)

// Collector returns the metrics, named after namespace unless it is empty.
func (g *Gate) Collector(namespace string) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "gate", name), help, labels, nil)
	}
	connections := desc("connections", "Number of open websockets.")
	clients := desc("clients", "Number of clients with an open websocket.")
	queued := desc("queued_bytes", "Bytes that wait to be written to clients or are being written.")
	taken := desc("slots_in_use", "Number of used slots by shared resource.", "resource")
	waiting := desc("waiting", "Number of messages that wait for a slot by shared resource.", "resource")
	refused := desc("refused_total", "Total refused requests by exhausted resource.", "resource")
	hungUp := desc("disconnects_total", "Total websockets closed by the server by reason.", "reason")
	return prometheus.CollectorFunc(func(ch chan<- prometheus.Metric) {
		gauge := func(d *prometheus.Desc, v int, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
		}
		g.mu.Lock()
		counts, conns, who := maps.Clone(g.counts), g.conns.Len(), make(map[limit.Stranger]struct{})
		for c := range g.conns.All() {
			who[c.who] = struct{}{}
		}
		g.mu.Unlock()
		gauge(connections, conns)
		gauge(clients, len(who))
		gauge(queued, int(g.queued.Load()))
		listening, reconciliations := g.live.sizes()
		gauge(taken, listening, "listening")
		gauge(taken, reconciliations, "reconciliations")
		for of, s := range map[string]*limit.Slots{"work": g.work, "events": g.events, "body_bytes": g.bodies} {
			used, n := s.Stats()
			gauge(taken, int(used), of)
			gauge(waiting, n, of)
		}
		for d, which := range map[*prometheus.Desc][]string{refused: {refusedListening, refusedNegs}, hungUp: {hungUpRoom, hungUpSlow, hungUpQuiet}} {
			for _, what := range which {
				ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(counts[what]), what)
			}
		}
	})
}
