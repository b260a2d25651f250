package sync

import (
	"context"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

const (
	retryFirst = time.Second     // before an event is saved again that could not be
	retryMost  = 4 * time.Minute // the same after many failures

	// wholeTries is how often an event is tried while others could be saved. Then only its id is kept.
	wholeTries = 4

	// askEvery is the time between two requests of ids that had no room or could not be saved, and askMost how
	// many are requested of each relay.
	askEvery = time.Minute
	askMost  = 100

	// turnEvery is the least time between two turns of events that are judged or saved again. What comes now has
	// the writer for itself for turnShare times as long as a turn took.
	turnEvery = time.Second
	turnShare = 4
)

// retry is how often an event could not be judged or saved.
type retry struct {
	attempts int    // while others could be saved
	tries    int    // all of them
	works    uint64 // retrier.works at the last one
	slow     bool   // the Store came to no end with it alone
}

// payer is kept with a pending event.
type payer struct {
	stats *relayStats
	retry retry
}

// retrier keeps events that could not be judged or saved among the pending events, until they can be. It
// belongs to the writer.
type retrier struct {
	cfg      *Config // read-only
	flights  *flights
	absences *absences
	saving   *saving
	store    *containedStore
	refetch  *refetch
	report   *report

	works    uint64        // how often the Store saved something
	workedAt time.Time     // when it did after a time in which it saved nothing, or saved something that had failed
	wait     time.Duration // while nothing can be saved, 0 if something can
	next     time.Time     // not before that then
	askAt    time.Time     // of ids
	timer    *time.Timer   // of the next turn, nil if there is none
	turnAt   time.Time     // when that is

	// what the Store or the Policy could not do lately
	failures uint64 // ever
	unsaid   int    // since the last line in the log
	saidAt   time.Time
	down     bool // since then nothing of what had failed was saved
	said     bool // it was, and not yet that it works again
}

// failed has a job tried again whose event could not be judged or saved: that is no verdict on the event. It
// is kept whole while there is room. If there is none, the batch that brought it fails, and is fetched again.
func (x *retrier) failed(j *job, err error) {
	x.report.failed.Add(1)
	x.report.states.note(j.incoming, EventState{Is: IsFailing, Detail: graspsync.Printable(err.Error())})
	x.troubled(err)
	x.absences.known.Forget(j.key.id) // whatever became of it before
	if j.tries == 0 || j.works != x.works {
		j.attempts++
	}
	j.tries++
	j.works = x.works
	n := j.note()
	before, _ := x.absences.rejected.Look(n.ID)
	requested := before.Unsaved && before.Whole == nil // and not before it is again
	switch {
	case j.attempts >= wholeTries || requested:
	case !j.revived && j.incoming.Source.Kind != graspsync.Live && !x.absences.rejected.HasRoom(n.Size):
		x.end(j, false)
		return
	default:
		n.Due = time.Now().Add(backoff.Doubled(retryFirst, retryMost, j.tries))
	}
	n.Unsaved = true
	x.absences.note(n)
	x.arm(n.Due)
	x.done(j)
}

// done settles a job of which a verdict or the Store has disposed, or that is pending.
func (x *retrier) done(j *job) { x.end(j, true) }

// end settles a job. ok is false if its event is not kept.
func (x *retrier) end(j *job, ok bool) {
	j.over = true
	if !j.revived {
		x.flights.settled(j, ok)
	}
}

// lose settles jobs of which nobody has disposed, nor will. What was taken out of where it
// waited is nowhere else: it is asked for again.
func (x *retrier) lose(jobs []*job) {
	for _, j := range jobs {
		if j.revived && !j.again {
			x.absences.known.Forget(j.key.id)
			x.absences.rejected.Forget(j.key.id)
			x.report.drop("unsaved", 1)
			x.refetch.again(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
		}
		x.end(j, false)
	}
}

// lost has relays asked again for the time since unsaved events came of which not even the ids are kept.
func (x *absences) lost(unsaved []pending.Heard) {
	for _, e := range unsaved {
		x.report.drop("unsaved", 1)
		x.known.Forget(e.ID)
		x.saving.letGo(e.Relay, e.Seen)
	}
}

// due returns the channel that says when to judge again, nil if there is nothing.
func (x *retrier) due() <-chan time.Time {
	if x.timer == nil {
		return nil
	}
	return x.timer.C
}

// arm has the next turn begin at a time, or earlier.
func (x *retrier) arm(at time.Time) {
	now := time.Now()
	if at.IsZero() || at.Before(x.next) {
		at = x.next
	}
	wait := max(turnEvery, at.Sub(now))
	if x.timer == nil || now.Add(wait).Before(x.turnAt) {
		x.timer, x.turnAt = time.NewTimer(wait), now.Add(wait)
	}
}

// worked notes that something was saved. If nothing could be before, all is tried that waited for that.
func (x *retrier) worked() {
	x.works++
	if x.wait > 0 {
		x.wait, x.next = 0, time.Time{}
		x.hurry()
		x.saving.works()
	}
}

// hurry has all that could not be saved tried soon.
func (x *retrier) hurry() {
	x.workedAt = time.Now()
	x.arm(x.workedAt)
}

// stuck notes that of what was tried nothing could be saved: it is no use to try the rest right now.
func (x *retrier) stuck(now time.Time) {
	x.wait = min(max(2*x.wait, retryFirst), retryMost)
	x.next = now.Add(x.wait)
	x.saving.stuck(now)
}

// askAgain requests events of which only the ids are left, unless they are stored.
func (x *retrier) askAgain(ctx context.Context, relay graspsync.RelayURL, ids []graspsync.EventID) {
	has, err := x.store.has(ctx, ids)
	missing := ids[:0]
	for i, id := range ids {
		if err == nil && has[i] {
			x.absences.rejected.Forget(id)
			continue
		}
		missing = append(missing, id)
	}
	x.refetch.again(relay, missing)
}

const sayTrouble = time.Minute // between two lines in the log, however much fails

// troubled takes note that an event could not be judged or saved.
func (x *retrier) troubled(err error) {
	x.failures++
	x.unsaid++
	x.down = true
	now := time.Now()
	if !x.saidAt.IsZero() && now.Sub(x.saidAt) < sayTrouble {
		return
	}
	x.cfg.Logger.Warn("events could not be saved, and are tried again", "failures", x.unsaid,
		"unsaved", x.absences.rejected.Unsaved()+1, keyErr, err)
	x.report.observe(StoreFailed{Err: err})
	x.saidAt, x.unsaid, x.said = now, 0, true
}

// savedAgain takes note that what could not be saved before was saved now.
func (x *retrier) savedAgain() {
	if !x.down {
		return
	}
	x.down = false
	x.saving.works()
	x.hurry()
	if x.said {
		x.said = false
		x.cfg.Logger.Info("events can be saved again", "unsaved", x.absences.rejected.Unsaved())
	}
}
