package sync

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

const (
	retryFirst = time.Second     // wait before the first retry of an event
	retryMost  = 4 * time.Minute // wait after many failures

	// wholeTries is the maximum number of failures of an event, while other events could be saved.
	// Then only the id of the event is kept.
	wholeTries = 4

	// askEvery is the minimum time between two requests for events by id. askMost is the maximum
	// number of ids per relay in one request.
	askEvery = time.Minute
	askMost  = 100

	// turnEvery is the minimum time between two retries. After a retry the writer serves new events
	// for turnShare times as long as the retry took.
	turnEvery = time.Second
	turnShare = 4
)

// retry counts the failures of an event.
type retry struct {
	attempts int    // while other events could be saved
	tries    int    // all
	works    uint64 // writer.works at the last failure
	slow     bool   // a save of this event alone was too slow
}

// payer is the part of a job that is kept with a pending event.
type payer struct {
	stats *relayStats
	retry retry
}

// failed schedules a retry of a job whose event could not be judged or saved. The event is kept
// whole while there is room. Otherwise its batch fails, and the event is fetched again.
func (w *writer) failed(j *job, err error) {
	w.telemetry.failed.Add(1)
	w.telemetry.states.note(j.incoming, EventState{Is: IsFailing, Detail: graspsync.Printable(err.Error())})
	w.troubled(err)
	w.known.Forget(j.key.id) // an earlier result no longer counts
	if j.tries == 0 || j.works != w.works {
		j.attempts++
	}
	j.tries++
	j.works = w.works
	n := j.note()
	before, _ := w.rejected.Look(n.ID)
	requested := before.Unsaved && before.Whole == nil // keep only its id
	switch {
	case j.attempts >= wholeTries || requested:
	case !j.revived && j.incoming.Source.Kind != graspsync.Live && !w.rejected.HasRoom(n.Size):
		w.end(j, false)
		return
	default:
		n.Due = time.Now().Add(backoff.Doubled(retryFirst, retryMost, j.tries))
	}
	n.Unsaved = true
	w.note(n)
	w.arm(n.Due)
	w.done(j)
}

// done settles a job that is stored, rejected or pending.
func (w *writer) done(j *job) { w.end(j, true) }

// end settles a job. ok is false if its event was lost.
func (w *writer) end(j *job, ok bool) {
	j.over = true
	if !j.revived {
		w.inflight.settled(j, ok)
	}
}

// requestAgain settles jobs without a result. A revived event is in no table, so it is requested again.
func (w *writer) requestAgain(jobs []*job) {
	for _, j := range jobs {
		if j.revived && !j.again {
			w.known.Forget(j.key.id)
			w.rejected.Forget(j.key.id)
			w.telemetry.drop("unsaved", 1)
			w.refetch(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
		}
		w.end(j, false)
	}
}

// due returns the channel of the next retry, or nil if none is scheduled.
func (w *writer) due() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C
}

// arm schedules a retry at a time, unless an earlier retry is scheduled.
func (w *writer) arm(at time.Time) {
	now := time.Now()
	if at.IsZero() || at.Before(w.pause.Until) {
		at = w.pause.Until
	}
	wait := max(turnEvery, at.Sub(now))
	if w.timer == nil || now.Add(wait).Before(w.turnAt) {
		w.timer, w.turnAt = time.NewTimer(wait), now.Add(wait)
	}
}

// worked records a successful save. If saving failed before, all failed events are retried.
func (w *writer) worked() {
	w.works++
	if w.pause.Times > 0 {
		w.pause = backoff.Streak{}
		w.retrySoon()
		w.health.works()
	}
}

func (w *writer) retrySoon() {
	w.workedAt = time.Now()
	w.arm(w.workedAt)
}

// askAgain requests events by id, unless they are stored.
func (w *writer) askAgain(ctx context.Context, relay graspsync.RelayURL, ids []graspsync.EventID) {
	has, err := w.store.has(ctx, ids)
	missing := ids[:0]
	for i, id := range ids {
		if err == nil && has[i] {
			w.rejected.Forget(id)
			continue
		}
		missing = append(missing, id)
	}
	w.refetch(relay, missing)
}

const sayTrouble = time.Minute // minimum time between two log lines

// troubled counts and logs a failure to judge or save.
func (w *writer) troubled(err error) {
	w.failures++
	w.unsaid++
	w.down = true
	now := time.Now()
	if !w.saidAt.IsZero() && now.Sub(w.saidAt) < sayTrouble {
		return
	}
	w.cfg.Logger.Warn("saving events failed, will retry", "failures", w.unsaid,
		"unsaved", w.rejected.Unsaved()+1, keyErr, err)
	w.saidAt, w.unsaid, w.said = now, 0, true
}

// savedAgain logs that a failed event was saved.
func (w *writer) savedAgain() {
	if !w.down {
		return
	}
	w.down = false
	w.health.works()
	w.retrySoon()
	if w.said {
		w.said = false
		w.cfg.Logger.Info("saving events succeeded again", "unsaved", w.rejected.Unsaved())
	}
}

// storeHealth records whether events can be saved. Only the writer changes it. It is safe for
// concurrent use.
type storeHealth struct {
	mu sync.Mutex
	// guarded by mu
	lost    map[graspsync.RelayURL]time.Time // the earliest event of each relay that was dropped unsaved
	missed  map[graspsync.RelayURL]time.Time // the same, of relays to ask since saving works again
	nothing bool                             // nothing can be saved
	stuckAt time.Time                        // the last time when nothing could be saved
	again   bool                             // saving works again, and recovered has not reported it
}

// works records that events can be saved again.
func (s *storeHealth) works() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again, s.nothing = true, false
}

// stuck records that a retry saved no event.
func (s *storeHealth) stuck(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuckAt, s.nothing = now, true
}

// letGo records that an event of a relay, received at since, was dropped unsaved.
func (s *storeHealth) letGo(relay graspsync.RelayURL, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keepEarliest(&s.lost, relay, since)
}

func keepEarliest(times *map[graspsync.RelayURL]time.Time, relay graspsync.RelayURL, t time.Time) {
	if at, known := (*times)[relay]; !known || t.Before(at) {
		lazy.Put(times, relay, t)
	}
}

func (s *storeHealth) savesNothing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nothing
}

// stuckSince reports whether saving failed completely at some time since t.
func (s *storeHealth) stuckSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stuckAt.Before(t)
}

// recovered reports whether saving works again after a failure, or works now if late is set. missed
// are the relays to ask for their dropped events, with the time of the earliest.
func (s *storeHealth) recovered(late bool) (missed map[graspsync.RelayURL]time.Time, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nothing {
		return nil, false
	}
	if again = s.again || late; again {
		for u, since := range s.lost {
			keepEarliest(&s.missed, u, since)
		}
		s.lost, s.again = nil, false
	}
	return maps.Clone(s.missed), again
}

// refetched records that the dropped events of a relay since a time are requested.
func (s *storeHealth) refetched(relay graspsync.RelayURL, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missed[relay].Equal(since) {
		delete(s.missed, relay)
	}
}
