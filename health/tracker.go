package health

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
)

// RelayHealthTracker contains a [Record] for each relay and applies the rules. It is safe for
// concurrent use.
//
// Contradictory events are read in the way that causes fewer attempts. An attempt or connection
// without a reported end ends in a failure when the next begins.
type RelayHealthTracker struct {
	config Config // set by New, read-only

	mu sync.Mutex
	// guarded by mu
	records *limit.Table[graspsync.RelayURL, Record]
	hosts   *limit.Table[string, Record] // made from the attempts at all URLs of a host
}

// NewTracker returns a tracker without records. The error names every invalid field.
func NewTracker(c Config) (*RelayHealthTracker, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("health: Config: %w", err)
	}
	return &RelayHealthTracker{
		config: c, records: limit.NewTable[graspsync.RelayURL, Record](c.MaxRecords, 0), hosts: limit.NewTable[string, Record](maxHosts, 0),
	}, nil
}

// Attempt records the start of a dial. The caller must then report exactly one of Connected,
// Failed, Refused and Closed.
func (t *RelayHealthTracker) Attempt(u graspsync.RelayURL) { t.apply(u, event{kind: attempt}) }

// Connected records a successful dial. At its end the caller must report exactly one of Lost, Hung,
// Hostile and Closed.
func (t *RelayHealthTracker) Connected(u graspsync.RelayURL) { t.apply(u, event{kind: connected}) }

// Failed records a failed dial. If an error in the chain of err has a method RetryAfter()
// time.Duration, the wait is at least its result, up to 1 h.
func (t *RelayHealthTracker) Failed(u graspsync.RelayURL, err error) {
	e := event{kind: failed, text: errorText(err)}
	var asked interface{ RetryAfter() time.Duration }
	if errors.As(err, &asked) {
		e.wait = asked.RetryAfter()
	}
	t.apply(u, e)
}

// Refused records a dial that our own settings forbid. It is no failure of the relay. The next
// attempt is due after 1 min, doubling to 1 h, and immediately after Import.
func (t *RelayHealthTracker) Refused(u graspsync.RelayURL, err error) {
	t.apply(u, event{kind: refused, text: errorText(err)})
}

// Lost records that a connection ended because of the relay or the network, a failure within its
// first minute.
func (t *RelayHealthTracker) Lost(u graspsync.RelayURL, err error) {
	t.apply(u, event{kind: lost, text: errorText(err)})
}

// Hung records that we ended a connection without answers, which is a failure.
func (t *RelayHealthTracker) Hung(u graspsync.RelayURL, err error) {
	t.apply(u, event{kind: hung, text: errorText(err)})
}

// Closed records that we ended a connection or dial. A relay in backoff keeps its place.
func (t *RelayHealthTracker) Closed(u graspsync.RelayURL) { t.apply(u, event{kind: closed}) }

// Stopped is Closed because our process stops. After Import a working relay may then be dialed
// immediately, up to three times in ten minutes.
func (t *RelayHealthTracker) Stopped(u graspsync.RelayURL) { t.apply(u, event{kind: stopped}) }

// Hostile records that the relay sent forged data, a failure with a wait of at least an hour.
func (t *RelayHealthTracker) Hostile(u graspsync.RelayURL) {
	t.apply(u, event{kind: hostile, text: "hostile"})
}

// Forgive allows an immediate attempt at a failing relay, for an operator.
func (t *RelayHealthTracker) Forgive(u graspsync.RelayURL) { t.apply(u, event{kind: forgiven}) }

// Forget removes a relay that is no longer wanted. A failing relay keeps its place in the backoff
// while there is room.
func (t *RelayHealthTracker) Forget(u graspsync.RelayURL) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	r, ok := t.current(u, now)
	if !ok {
		return
	}
	t.applyToHost(u, r, event{kind: closed}, now, 0)
	r = t.config.step(r, event{kind: closed}, now, 0)
	if r.inBackoff(now) {
		r.CountedTo = time.Time{} // neither up nor down while unwanted
		// Callers that sum the counters have added them already.
		r.Attempts, r.Connections, r.FailedAttempts, r.Disconnects, r.Reconnects = 0, 0, 0, 0, 0
		t.set(u, r)
	} else {
		t.records.Delete(u)
	}
}

// NextAttempt returns the earliest time at which the relay may be dialed, by its own record and
// that of its host. Zero means now.
func (t *RelayHealthTracker) NextAttempt(u graspsync.RelayURL) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nextAttempt(u, time.Now())
}

// The caller holds mu.
func (t *RelayHealthTracker) nextAttempt(u graspsync.RelayURL, now time.Time) time.Time {
	r, _ := t.current(u, now)
	if r.connected() {
		return time.Time{}
	}
	return backoff.Later(r.NextAttempt, t.nextOfHost(u, r))
}

// IsProven reports whether the relay has ever held a connection for a minute.
func (t *RelayHealthTracker) IsProven(u graspsync.RelayURL) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, _ := t.current(u, time.Now())
	return r.Proven
}

// Status returns the current status of the relay, Disconnected without a record.
func (t *RelayHealthTracker) Status(u graspsync.RelayURL) Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	r, _ := t.current(u, now)
	s := t.config.status(r, now)
	s.NextAttempt = t.nextAttempt(u, now)
	return s
}

// Dropped returns the number of records of relays and hosts evicted since the start.
func (t *RelayHealthTracker) Dropped() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.records.Evicted() + t.hosts.Evicted()
}

// Export returns the record of a relay for saving, or false. Save it after Attempt and before the
// dial, at the end of a connection, and periodically.
func (t *RelayHealthTracker) Export(u graspsync.RelayURL) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	r, ok := t.current(u, now)
	return r.countTo(now).forSaving(), ok
}

// Import restores a record of an earlier process before the first attempt. A connection of that
// process counts as a success only if it had held for a minute. The next attempt is at least a
// minute after the last, except after Stopped.
func (t *RelayHealthTracker) Import(u graspsync.RelayURL, r Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.records.Get(u); ok || u.IsZero() {
		return
	}
	now := time.Now()
	r = t.config.restore(r, now, t.random())
	t.set(u, r)
	t.restoreHost(Host(u), Record{Record: r.Record, Proven: r.Proven})
}

func (t *RelayHealthTracker) apply(u graspsync.RelayURL, e event) {
	if u.IsZero() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, jitter := time.Now(), t.random()
	r, ok := t.current(u, now)
	if !ok && e.kind.createsNoRecord() {
		return // the record was dropped, and this event creates no record
	}
	t.applyToHost(u, r, e, now, jitter)
	t.set(u, t.config.step(r, e, now, jitter))
}

func (t *RelayHealthTracker) set(u graspsync.RelayURL, r Record) {
	t.records.PutKeeping(u, limit.Stranger{}, 0, r, func(u graspsync.RelayURL) bool {
		r, _ := t.records.Get(u)
		return r.inUse()
	})
}

// random returns a number in [0, 1).
func (t *RelayHealthTracker) random() float64 {
	return min(max(t.config.random(), 0), 1-1e-9)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return graspsync.Printable(err.Error())
}
