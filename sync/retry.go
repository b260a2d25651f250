package sync

import (
	"context"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
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
	works    uint64 // writer.works at the last one
	slow     bool   // the Store came to no end with it alone
}

// payer is kept with a pending event.
type payer struct {
	stats *relayStats
	retry retry
}

// failed has a job tried again whose event could not be judged or saved: that is no verdict on the event. It
// is kept whole while there is room. If there is none, the batch that brought it fails, and is fetched again.
func (w *writer) failed(j *job, err error) {
	w.telemetry.failed.Add(1)
	w.telemetry.states.note(j.incoming, EventState{Is: IsFailing, Detail: graspsync.Printable(err.Error())})
	w.troubled(err)
	w.known.Forget(j.key.id) // whatever became of it before
	if j.tries == 0 || j.works != w.works {
		j.attempts++
	}
	j.tries++
	j.works = w.works
	n := j.note()
	before, _ := w.rejected.Look(n.ID)
	requested := before.Unsaved && before.Whole == nil // and not before it is again
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

// done settles a job of which a verdict or the Store has disposed, or that is pending.
func (w *writer) done(j *job) { w.end(j, true) }

// end settles a job. ok is false if its event is not kept.
func (w *writer) end(j *job, ok bool) {
	j.over = true
	if !j.revived {
		w.inflight.settled(j, ok)
	}
}

// lose settles jobs of which nobody has disposed, nor will. What was taken out of where it
// waited is nowhere else: it is asked for again.
func (w *writer) lose(jobs []*job) {
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

// due returns the channel that says when to judge again, nil if there is nothing.
func (w *writer) due() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C
}

// arm has the next turn begin at a time, or earlier.
func (w *writer) arm(at time.Time) {
	now := time.Now()
	if at.IsZero() || at.Before(w.next) {
		at = w.next
	}
	wait := max(turnEvery, at.Sub(now))
	if w.timer == nil || now.Add(wait).Before(w.turnAt) {
		w.timer, w.turnAt = time.NewTimer(wait), now.Add(wait)
	}
}

// worked notes that something was saved. If nothing could be before, all is tried that waited for that.
func (w *writer) worked() {
	w.works++
	if w.wait > 0 {
		w.wait, w.next = 0, time.Time{}
		w.retrySoon()
		w.health.works()
	}
}

// retrySoon has all that could not be saved tried soon.
func (w *writer) retrySoon() {
	w.workedAt = time.Now()
	w.arm(w.workedAt)
}

// stuck notes that of what was tried nothing could be saved: it is no use to try the rest right now.
func (w *writer) stuck(now time.Time) {
	w.wait = min(max(2*w.wait, retryFirst), retryMost)
	w.next = now.Add(w.wait)
	w.health.stuck(now)
}

// askAgain requests events of which only the ids are left, unless they are stored.
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

const sayTrouble = time.Minute // between two lines in the log, however much fails

// troubled takes note that an event could not be judged or saved.
func (w *writer) troubled(err error) {
	w.failures++
	w.unsaid++
	w.down = true
	now := time.Now()
	if !w.saidAt.IsZero() && now.Sub(w.saidAt) < sayTrouble {
		return
	}
	w.cfg.Logger.Warn("events could not be saved, and are tried again", "failures", w.unsaid,
		"unsaved", w.rejected.Unsaved()+1, keyErr, err)
	w.telemetry.observe(StoreFailed{Err: err})
	w.saidAt, w.unsaid, w.said = now, 0, true
}

// savedAgain takes note that what could not be saved before was saved now.
func (w *writer) savedAgain() {
	if !w.down {
		return
	}
	w.down = false
	w.health.works()
	w.retrySoon()
	if w.said {
		w.said = false
		w.cfg.Logger.Info("events can be saved again", "unsaved", w.rejected.Unsaved())
	}
}
