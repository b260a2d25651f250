package health

import (
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// RelayHealthTracker keeps a [Record] for each relay and applies the rules to it.
// It is safe for concurrent use. Make one with [NewTracker].
//
// Events may come in any order and more than once; what makes no sense is read in
// the way that is kinder to the relay: an attempt or a connection whose end was
// never told ended in a failure when the next one begins, a Lost without a
// connection is nothing. The zero RelayURL is no relay: nothing is recorded for it.
type RelayHealthTracker struct {
	config Config // set by New, read-only

	mu sync.Mutex
	// guarded by mu
	records table[graspsync.RelayURL]
	hosts   hosts
}

// NewTracker returns a tracker without records, or an error that names every field
// of the config that is wrong.
func NewTracker(c Config) (*RelayHealthTracker, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("health: Config: %w", err)
	}
	return &RelayHealthTracker{config: c, records: newTable[graspsync.RelayURL](c.MaxRecords), hosts: newHosts(c.fixed.MaxHosts)}, nil
}

// Attempt records that a dial begins. Exactly one of Connected, Failed, Refused and Closed
// is told next.
func (t *RelayHealthTracker) Attempt(u graspsync.RelayURL) { t.apply(u, event{kind: attempt}) }

// Connected records that the dial succeeded. Exactly one of Lost, Hung, Hostile
// and Closed is told when the connection ends.
func (t *RelayHealthTracker) Connected(u graspsync.RelayURL) { t.apply(u, event{kind: connected}) }

// Failed records that the dial failed, and why. An error in whose chain there is a
// method RetryAfter() time.Duration (HTTP's header of that name) makes the relay
// wait at least that long, up to where doubling ends.
func (t *RelayHealthTracker) Failed(u graspsync.RelayURL, err error) {
	e := event{kind: failed, text: text(err)}
	var asked interface{ RetryAfter() time.Duration }
	if errors.As(err, &asked) {
		e.wait = asked.RetryAfter()
	}
	t.apply(u, e)
}

// Refused records that the dial was not made, since our own settings forbid it, and why. The relay is left
// alone as if it had failed, and Status says so, but none of that is in what Export returns: another
// process may have other settings.
func (t *RelayHealthTracker) Refused(u graspsync.RelayURL, err error) {
	t.apply(u, event{kind: refused, text: text(err)})
}

// Lost records that the connection ended, and why: the relay closed it, the network
// broke, a ping was not answered. It is a failure only if the connection had not
// held for a minute.
func (t *RelayHealthTracker) Lost(u graspsync.RelayURL, err error) {
	t.apply(u, event{kind: lost, text: text(err)})
}

// Hung records that we ended a connection on which the relay answered nothing any more, and why.
// It is a failure however long the connection had held; if that was less than an hour it comes on
// top of those before.
func (t *RelayHealthTracker) Hung(u graspsync.RelayURL, err error) {
	t.apply(u, event{kind: hung, text: text(err)})
}

// Closed records that we ended the connection, or gave up the dial, for reasons of
// our own: shutdown, nothing left to ask. It is neither a success nor a failure, and
// a relay in backoff keeps its place.
func (t *RelayHealthTracker) Closed(u graspsync.RelayURL) { t.apply(u, event{kind: closed}) }

// Stopped is Closed where the reason is that our process stops, for a relay that has
// answered as one: after Import it may be dialed at once, up to three times in ten
// minutes, and not after a pause as when our process had died.
func (t *RelayHealthTracker) Stopped(u graspsync.RelayURL) { t.apply(u, event{kind: stopped}) }

// RateLimited records that the relay complained of too many requests, and is left in peace
// until then, at least for [RateLimitPause] and at most for an hour, or that. No new ones should be
// sent before Status(u).RateLimitedUntil; the connection stays.
func (t *RelayHealthTracker) RateLimited(u graspsync.RelayURL, until time.Time) {
	t.apply(u, event{kind: rateLimited, until: until})
}

// Hostile records that the relay was caught cheating, as with forged signatures: a
// failure, with at least an hour until the next attempt. If it is connected, that
// connection counts as ended; a Lost that follows is nothing more.
func (t *RelayHealthTracker) Hostile(u graspsync.RelayURL) {
	t.apply(u, event{kind: hostile, text: "hostile"})
}

// Forgive lets a relay be dialed now that is failing, or that asked to be left alone: somebody who
// runs this server wants it tried. It keeps its failures: the next one is as long a wait as it
// would have been.
func (t *RelayHealthTracker) Forgive(u graspsync.RelayURL) { t.apply(u, event{kind: forgiven}) }

// Forget drops a relay that nobody wants any more: All no longer yields it. Only
// the place of a failing relay in the backoff is kept, while there is room, so that
// who lists a relay and unlists it again and again can't bring it more attempts than
// who lists it once. If it is connected, that connection counts as Closed.
func (t *RelayHealthTracker) Forget(u graspsync.RelayURL) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.records.get(u)
	if !ok {
		return
	}
	now := time.Now()
	if r.inUse() {
		t.hosts.apply(t.config, u, event{kind: closed}, now, 0)
	}
	r = t.config.step(r, event{kind: closed}, now, 0)
	if r.remember(now) {
		r.CountedTo = time.Time{} // unwanted, it is neither up nor down
		// Whoever adds up what was counted has it by now, and should not have it twice.
		r.Attempts, r.Connections, r.FailedAttempts, r.Disconnects, r.Reconnects = 0, 0, 0, 0, 0
		t.records.put(u, r, forgotten)
	} else {
		t.records.remove(u)
	}
}

// NextAttempt returns the earliest time at which the relay may be dialed, by its own
// record and by that of its host. It is zero for one that was never tried, which
// means now, and meaningless while the relay is connected. While an attempt is under
// way it says when the next would be due if nothing were heard of that one.
func (t *RelayHealthTracker) NextAttempt(u graspsync.RelayURL) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nextAttempt(u, time.Now())
}

// nextAttempt expects the lock to be held.
func (t *RelayHealthTracker) nextAttempt(u graspsync.RelayURL, now time.Time) time.Time {
	r, _ := t.records.get(u)
	r = t.config.settle(r, now)
	if r.connected() {
		return time.Time{}
	}
	return backoff.Later(r.next(), t.hosts.next(t.config, u, r, now))
}

// KnownGood reports whether the relay has ever held a connection for a minute.
func (t *RelayHealthTracker) KnownGood(u graspsync.RelayURL) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, _ := t.records.get(u)
	return t.config.settle(r, time.Now()).Proven
}

// Status returns how the relay is doing now. A relay without a record is
// Disconnected.
func (t *RelayHealthTracker) Status(u graspsync.RelayURL) Status {
	s, _ := t.status(u)
	return s
}

// status also reports whether the relay has a record that is not forgotten.
func (t *RelayHealthTracker) status(u graspsync.RelayURL) (Status, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, _ := t.records.get(u)
	now := time.Now()
	s := t.config.status(r, now)
	s.NextAttempt = t.nextAttempt(u, now)
	return s, t.records.isWanted(u)
}

// All yields every relay that has a record and is not forgotten, in no particular order, each with its
// status at the moment it is yielded. The loop may call any method of the tracker.
func (t *RelayHealthTracker) All() iter.Seq2[graspsync.RelayURL, Status] {
	return func(yield func(graspsync.RelayURL, Status) bool) {
		for _, u := range t.urls() {
			s, ok := t.status(u)
			if ok && !yield(u, s) {
				return
			}
		}
	}
}

func (t *RelayHealthTracker) urls() []graspsync.RelayURL {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.records.wanted()
}

// Dropped returns how many records were dropped, since the start, because there
// were more than [Config].MaxRecords of relays, or 50,000 of hosts.
func (t *RelayHealthTracker) Dropped() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.records.dropped + t.hosts.table.dropped
}

// Export returns the record of a relay for saving, false if there is none. To keep
// the promises about restarts save it after Attempt and before the dial, when a
// connection ended, and once in a while; at shutdown tell Closed first.
func (t *RelayHealthTracker) Export(u graspsync.RelayURL) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	r, ok := t.records.get(u)
	return t.config.settle(r, now).countTo(now).saved(), ok
}

// Import takes over a record that an earlier process saved. A connection that stood
// then counts as a success only if the record says that it had held for a minute,
// otherwise as a failure; the next attempt is at least a minute after the last. Times
// that lie in the future, as after the clock was set back, are corrected. See Stopped
// for what is dialed at once. A relay
// that already has a record keeps it, so Import belongs before the first attempt.
func (t *RelayHealthTracker) Import(u graspsync.RelayURL, r Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.records.get(u); ok || u.IsZero() {
		return
	}
	now := time.Now()
	r = t.config.restore(r, now, t.config.random())
	t.records.set(u, r)
	t.hosts.restored(u, r)
}

// apply is the shell: clock, randomness and storage around one pure call.
func (t *RelayHealthTracker) apply(u graspsync.RelayURL, e event) {
	if u.IsZero() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.records.get(u)
	if !ok && (e.kind == lost || e.kind == hung || e.kind == closed || e.kind == stopped || e.kind == forgiven) {
		return // its record was dropped, and this would bring nothing back
	}
	now, jitter := time.Now(), t.config.random()
	t.hosts.apply(t.config, u, e, now, jitter)
	r = t.config.step(r, e, now, jitter)
	t.records.set(u, r)
	if r.Proven {
		t.hosts.prove(u)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return graspsync.Printable(err.Error())
}
