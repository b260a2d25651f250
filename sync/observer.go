package sync

import (
	"context"
	"time"

	"github.com/graspsync/graspsync"
)

// Observation is an occurrence reported to [Config.Observe]. Its dynamic type is one of the types
// below, not a pointer. A switch needs a default case because types may be added.
type Observation interface{ observation() }

// Observations of relays.
type (
	// RelayConnected reports a successful connection attempt.
	RelayConnected struct{ Relay graspsync.RelayURL }
	// RelayFailed reports a failed attempt. Attempt is the number of consecutive failures. The next
	// attempt is due after Backoff. Err may contain remote text.
	RelayFailed struct {
		Relay   graspsync.RelayURL
		Attempt int
		Backoff time.Duration
		Err     error
	}
	// RelayLost reports the end of a connection. Err may contain remote text.
	RelayLost struct {
		Relay graspsync.RelayURL
		Err   error
	}
	// RelayDead reports once that a relay has failed for a day. Since is the time of the first
	// failure. The relay is retried daily from then on.
	RelayDead struct {
		Relay graspsync.RelayURL
		Since time.Time
	}
	// RelayForgotten reports that a relay is no longer followed.
	RelayForgotten struct{ Relay graspsync.RelayURL }
	// RelayLearned reports a learned limit of a relay. Fact is a name of [RelayStatus.Learned].
	RelayLearned struct {
		Relay graspsync.RelayURL
		Fact  string
		Value int
	}
	// RelayHostile reports that a connection was closed because the relay was hostile.
	RelayHostile struct{ Relay graspsync.RelayURL }
	// RelaySynced reports that all targets of a relay were fetched, Duration after the connection
	// opened. It is reported again each time the relay becomes synced again.
	RelaySynced struct {
		Relay    graspsync.RelayURL
		Duration time.Duration
	}
)

// Observations of history.
type (
	// PassStarted reports that the history of a relay is fetched again, daily or after more than 15
	// min without a connection.
	PassStarted struct {
		Relay graspsync.RelayURL
		Daily bool
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
	// GapFound reports an event of history that a live subscription should have delivered. Lasting
	// means that only the daily pass found it.
	GapFound struct {
		Relay   graspsync.RelayURL
		ID      graspsync.EventID
		Lasting bool
	}
)

// Observations of events.
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
	// StoreFailed reports a failed call of the Store or the Policy, at most once a minute. The call
	// is retried.
	StoreFailed struct{ Err error }
	// Dropped reports items dropped by a limit. Reason is a label value of ngit_sync_dropped_total.
	Dropped struct {
		Reason string
		Count  int
	}
	// OwnFeedRead reports the end of a reading of the own relay and the number of its events.
	OwnFeedRead struct{ Events int }
	// OwnFeedLost reports that the subscription to the own relay ended. It is renewed after
	// Backoff.
	OwnFeedLost struct {
		Err     error
		Backoff time.Duration
	}
)

func (RelayConnected) observation() {}
func (RelayFailed) observation()    {}
func (RelayLost) observation()      {}
func (RelayDead) observation()      {}
func (RelayForgotten) observation() {}
func (RelayLearned) observation()   {}
func (RelayHostile) observation()   {}
func (RelaySynced) observation()    {}
func (PassStarted) observation()    {}
func (BatchConfirmed) observation() {}
func (BatchFailed) observation()    {}
func (GapFound) observation()       {}
func (EventStored) observation()    {}
func (EventRejected) observation()  {}
func (StoreFailed) observation()    {}
func (Dropped) observation()        {}
func (OwnFeedRead) observation()    {}
func (OwnFeedLost) observation()    {}

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
		tell: cfg.Observe, queue: make(chan Observation, cfg.fixed.ObserveQueue), counters: c,
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
