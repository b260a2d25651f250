package sync

import (
	"context"
	"time"

	"github.com/graspsync/graspsync"
)

// Observation is an occurrence reported to [Config.Observe]. Its dynamic type is one of the types
// below, not a pointer. A switch needs a default case because types may be added. Everything else
// is in [Status], in the log and in the metrics.
type Observation interface{ observation() }

type (
	// EventStored reports a new event stored by sync. The event must not be changed.
	EventStored struct {
		Event  graspsync.Event
		Source graspsync.Source
	}
	// EventRejected reports an event that the Policy rejected or postponed, with the reason of the
	// verdict.
	EventRejected struct {
		ID     graspsync.EventID
		Source graspsync.Source
		Reason string
	}
	// BatchConfirmed reports that a batch of requests has fetched all events of the relay. If Gaps
	// is set, the relay may have more. Kind is "history", "daily", "recent" or "deletions". Method
	// is as in [RelayStatus].
	BatchConfirmed struct {
		Relay    graspsync.RelayURL
		Kind     string
		Items    int
		Events   int // received, copies included
		Method   string
		Gaps     bool
		Duration time.Duration
	}
	// BatchFailed reports that a batch stopped early. The rest is requested again. Reason may be
	// remote text, escaped.
	BatchFailed struct {
		Relay  graspsync.RelayURL
		Kind   string
		Items  int
		Reason string
	}
	// RelayHostile reports that a connection was closed because the relay was hostile.
	RelayHostile struct{ Relay graspsync.RelayURL }
)

func (EventStored) observation()    {}
func (EventRejected) observation()  {}
func (BatchConfirmed) observation() {}
func (BatchFailed) observation()    {}
func (RelayHostile) observation()   {}

// dropObservations is the reason under which observations are counted that found no room in the
// queue. It is not observed.
const dropObservations = "observations"

// observe queues an observation for [Config.Observe], which one goroutine calls, so that a slow
// embedder blocks no other goroutine. It never blocks.
func (r *telemetry) observe(what Observation) {
	if r.queue == nil {
		return
	}
	select {
	case r.queue <- what:
	default:
		r.drop(dropObservations, 1)
	}
}

func (r *telemetry) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case what := <-r.queue:
			if ctx.Err() != nil {
				r.drop(dropObservations, 1)
			} else if err := r.call(what); err != nil {
				r.log.Error("observer failed", keyErr, err)
			}
		case <-ctx.Done():
		}
	}
	r.drop(dropObservations, len(r.queue))
}

func (r *telemetry) call(what Observation) (err error) {
	defer r.recovered(&err, "observer")
	r.tell(what)
	return nil
}
