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

// observer calls [Config.Observe] on one goroutine through a bounded queue, so that a slow embedder
// blocks no other goroutine. A nil observer does nothing.
type observer struct {
	tell     func(Observation)
	queue    chan Observation
	counters *counters
	lost     func(error)
}

// newObserver returns nil if [Config.Observe] is nil.
func newObserver(cfg Config, c *counters) *observer {
	if cfg.Observe == nil {
		return nil
	}
	return &observer{
		tell: cfg.Observe, queue: make(chan Observation, cfg.constants.ObserveQueue), counters: c,
		lost: func(err error) { cfg.Logger.Error("observer failed", keyErr, err) },
	}
}

// observe queues an observation. It never blocks.
func (o *observer) observe(what Observation) {
	if o == nil {
		return
	}
	select {
	case o.queue <- what:
	default:
		o.counters.drop(dropObservations, 1)
	}
}

func (o *observer) run(ctx context.Context) {
	if o == nil {
		return
	}
	for ctx.Err() == nil {
		select {
		case what := <-o.queue:
			if ctx.Err() != nil {
				o.counters.drop(dropObservations, 1)
			} else if err := o.call(what); err != nil {
				o.lost(err)
			}
		case <-ctx.Done():
		}
	}
	o.counters.drop(dropObservations, len(o.queue))
}

func (o *observer) call(what Observation) (err error) {
	defer o.counters.recovered(&err, "observer")
	o.tell(what)
	return nil
}
