package sync

import (
	"context"
	"time"

	"github.com/graspsync/graspsync"
)

// Observation is something that happened, told to [Config.Observe]: one of the
// types below, by value. More types may be added, so a switch over them needs a
// default that ignores what it does not know.
type Observation interface{ observation() }

// What happens with relays.
type (
	// RelayConnected says that an attempt succeeded.
	RelayConnected struct{ Relay graspsync.RelayURL }
	// RelayFailed says that an attempt failed. Attempt counts the failures in a row,
	// the next attempt is due after Backoff. A stranger may have written the text of
	// Err.
	RelayFailed struct {
		Relay   graspsync.RelayURL
		Attempt int
		Backoff time.Duration
		Err     error
	}
	// RelayLost says that a connection has ended. A stranger may have written the
	// text of Err.
	RelayLost struct {
		Relay graspsync.RelayURL
		Err   error
	}
	// RelayDead says that a relay has done nothing but fail for a day (Since). It is
	// told once; the relay is tried daily from now on.
	RelayDead struct {
		Relay graspsync.RelayURL
		Since time.Time
	}
	// RelayForgotten says that nothing is wanted of a relay any more.
	RelayForgotten struct{ Relay graspsync.RelayURL }
	// RelayLearned says that a relay taught something about itself. Fact is a name as
	// in [RelayStatus.Learned].
	RelayLearned struct {
		Relay graspsync.RelayURL
		Fact  string
		Value int
	}
	// RelayHostile says that a connection was ended since its relay proved hostile.
	RelayHostile struct{ Relay graspsync.RelayURL }
	// RelaySynced says that everything wanted of a relay has been fetched, Duration
	// after the connection was made. It is told again when that becomes true again.
	RelaySynced struct {
		Relay    graspsync.RelayURL
		Duration time.Duration
	}
)

// What happens with history.
type (
	// PassStarted says that all history of a relay is fetched anew: daily, or since
	// the relay was gone for longer than 15 min.
	PassStarted struct {
		Relay graspsync.RelayURL
		Daily bool
	}
	// BatchConfirmed says that a batch of requests has brought all that the relay
	// has; with Gaps set, all that it would give. Kind is "history", "daily",
	// "recent" or "deletions", Method as in [RelayStatus].
	BatchConfirmed struct {
		Relay    graspsync.RelayURL
		Kind     string
		Items    int
		Events   int // received, copies included
		Method   string
		Gaps     bool
		Duration time.Duration
	}
	// BatchFailed says that a batch stopped before its end; the rest will be asked
	// for again. Reason may be the relay's, made safe to show.
	BatchFailed struct {
		Relay  graspsync.RelayURL
		Kind   string
		Items  int
		Reason string
	}
	// GapFound says that history brought an event that a live subscription should
	// have brought before; Lasting, that only the daily pass did.
	GapFound struct {
		Relay   graspsync.RelayURL
		ID      graspsync.EventID
		Lasting bool
	}
)

// What happens with events.
type (
	// EventStored says that the Store took an event that came by sync, which it did
	// not have. The event must not be changed.
	EventStored struct {
		Event  graspsync.Event
		Source graspsync.Source
	}
	// EventRejected says that the Policy does not want an event, or not now. Reason is the
	// policy's.
	EventRejected struct {
		ID     graspsync.EventID
		Source graspsync.Source
		Reason string
	}
	// StoreFailed says that the Store, or the Policy, could not do its work, at most once a
	// minute. What it was about is tried again.
	StoreFailed struct{ Err error }
	// Dropped says that a bound kept something out. Reason is one of the values of
	// the label of ngit_sync_dropped_total.
	Dropped struct {
		Reason string
		Count  int
	}
	// OwnFeedRead says that a reading of our own relay reached its end, having
	// brought so many events.
	OwnFeedRead struct{ Events int }
	// OwnFeedLost says that the subscription to our own relay ended; it is made anew
	// after Backoff.
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

// dropObservations counts observations that found the queue full. It is not
// observed itself.
const dropObservations = "observations"

// observer tells the embedder what happens, on one goroutine and through a bounded
// queue, so that nobody ever waits for the embedder. A nil observer tells nobody.
type observer struct {
	tell     func(Observation)
	queue    chan Observation
	counters *counters
	lost     func(error)
}

// newObserver returns nil if there is nobody to tell.
func newObserver(cfg Config, c *counters) *observer {
	if cfg.Observe == nil {
		return nil
	}
	return &observer{
		tell: cfg.Observe, queue: make(chan Observation, cfg.fixed.ObserveQueue), counters: c,
		lost: func(err error) { cfg.Logger.Error("observer failed", keyErr, err) },
	}
}

// observe never blocks.
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

// run tells until ctx ends; what is queued then is told no more, and counted.
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
