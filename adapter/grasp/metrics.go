package grasp

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync/adapter/internal/collectors"
	"github.com/graspsync/graspsync/adapter/internal/readiness"
)

// ErrStarting is wrapped by what [Server.Ready] returns until Run has read the store.
var ErrStarting = readiness.ErrStarting

// Ready returns why the server can't do its work now, so that clients are better sent elsewhere; nil
// if it can. The error wraps [ErrStarting] until Run has read the store, and says later which of
// store, records and repositories can't be written to; one that wraps [khatruadapter.ErrRoom] is
// about the disk being full. It writes a few bytes to find out, at most once in 5 s; what the store
// can't do it knows from what failed. It returns within 5 s, also if the disk hangs.
func (s *Server) Ready(ctx context.Context) error { return s.readiness.Ready(ctx) }

// Collector has the metrics of all parts, for a registry of the caller's. namespace goes before
// their names, without an underscore; those of the purgatory have the names that operators know,
// without it. What Config.State keeps has a collector of its own. With [Open] that of the
// records is among these, and that of its rules with "_rules" behind the namespace.
func (s *Server) Collector(namespace string) prometheus.Collector {
	all := collectors.All{
		s.sync.Collector(namespace), s.purgatory.Collector(""), s.fetcher.Collector(namespace), s.git.Collector(namespace),
		s.Staging().Collector(namespace), s.gate.Collector(namespace), s.readiness.Collector(namespace),
		s.commands.Rules().Collector(namespace), s.commands.Collector(namespace),
	}
	if s.records != nil {
		all = append(all, s.records.Collector(namespace))
	}
	return all
}
