package sync

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// retrier is what becomes of events that could not be judged or saved: they are tried again
// until they can. It belongs to the writer, but for owed.
type retrier struct {
	cfg      *Config // read-only
	retries  retries
	trouble  trouble
	owed     atomic.Int64 // events to be saved of which only the id is left
	flights  *flights
	absences *absences
	saving   *saving
	store    *containedStore
	refetch  *refetch
	report   *report
}

// failed has a job tried again whose event could not be judged or saved: that is no
// verdict on the event.
func (x *retrier) failed(j *job, err error) {
	x.report.failed.Add(1)
	x.report.states.note(j.incoming, EventState{Is: IsFailing, Detail: graspsync.Printable(err.Error())})
	x.troubled(err)
	x.absences.known.Forget(j.key.id) // whatever became of it before
	if j.again {
		// There was room for it.
		j.again = false
		x.absences.rejected.Judging(j.key.id)
	}
	x.retry(j)
}

// retry has a job tried again, until that works. Its event stays in the pipeline, at
// first with a share of the bytes that is its own, and keeps its part of those in
// flight when that is used up, so that a Store that is down stops the reading of
// relays. Of one that fails while others are saved only the id is kept.
func (x *retrier) retry(j *job) {
	r := &x.retries
	if r.came(j.key.id) { // it was asked for once more
		x.end(j, true)
		return
	}
	if j.tries == 0 {
		j.since = time.Now()
	}
	if j.tries == 0 || r.works != j.works {
		j.attempts++
	}
	j.tries++
	j.works = r.works
	if j.attempts >= wholeTries {
		if x.owe(j) {
			x.end(j, true)
		} else {
			x.drop(j)
		}
		return
	}
	if !j.apart && r.apart+j.size <= r.room {
		j.apart = true
		r.apart += j.size
		if !j.revived {
			j.release()
		}
	}
	if j.revived && !j.apart && x.owe(j) { // it has no other share than that
		return
	}
	x.flights.failing([]*job{j}, true)
	r.add(j, time.Now())
}

// done settles a job of which a verdict or the Store has disposed.
func (x *retrier) done(j *job) {
	x.paid(j.key.id)
	x.end(j, true)
}

// end settles a job that may have waited, or failed, before.
func (x *retrier) end(j *job, ok bool) {
	j.over = true
	if j.apart {
		x.retries.apart -= j.size
	}
	switch {
	case j.revived:
	case j.apart:
		x.flights.leave(j, ok)
	default:
		x.flights.settled(j, ok)
	}
}

// lose settles jobs of which nobody has disposed, nor will. What was taken out of where it
// waited is nowhere else: it is asked for again.
func (x *retrier) lose(jobs []*job) {
	for _, j := range jobs {
		if j.revived {
			x.absences.known.Forget(j.key.id)
			x.absences.rejected.Forget(j.key.id)
			x.report.drop("unsaved", 1)
			x.refetch.again(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
		}
		x.end(j, false)
	}
}

// giveUp settles jobs that will not be tried again.
func (x *retrier) giveUp(jobs []*job) {
	for _, j := range jobs {
		x.end(j, false)
	}
}

// relieve lets go of the bytes of events that have failed if they take most of those in flight, or most
// of the part of their relay's host: it may be they that can't be saved, and nothing else gets in to show
// it. If it is the Store, they are fetched again later. Of what fits of their ids the ids are kept.
func (x *retrier) relieve() {
	r := &x.retries
	most := x.cfg.Limits.InFlight / 2
	hosts := make(map[limit.Stranger]int64)
	holds := func(j *job) bool { return !j.apart && !j.revived }
	for _, j := range r.jobs {
		if holds(j) {
			hosts[j.host()] += j.size
		}
	}
	kept := r.jobs[:0]
	var owed, lost []*job
	for _, j := range r.jobs {
		if !holds(j) || r.held <= most && hosts[j.host()] <= hostShare(most) {
			kept = append(kept, j)
			continue
		}
		r.held -= j.size
		hosts[j.host()] -= j.size
		if x.owe(j) {
			owed = append(owed, j)
		} else {
			lost = append(lost, j)
		}
	}
	clear(r.jobs[len(kept):])
	r.jobs = kept
	x.flights.failing(append(owed, lost...), false)
	for _, j := range owed {
		x.end(j, true)
	}
	for _, j := range lost {
		x.drop(j)
	}
}

// drop ends a job whose event is not saved and of which not even the id is kept. A batch
// that brought it is repeated; a live event is asked for by its id.
func (x *retrier) drop(j *job) {
	x.absences.known.Forget(j.key.id)
	x.absences.rejected.Forget(j.key.id)
	x.report.drop("unsaved", 1)
	relay := j.incoming.Source.Relay
	x.miss(relay, j.since)
	x.end(j, false)
	if j.incoming.Source.Kind == graspsync.Live {
		x.refetch.again(relay, []graspsync.EventID{j.key.id})
	}
}

// miss keeps what a relay has from counting as complete: an event of its was let go of
// that had come before since. It is asked again since then when events can be saved.
func (x *retrier) miss(relay graspsync.RelayURL, since time.Time) {
	x.flights.failing([]*job{x.retries.miss(relay, time.Now())}, true)
	x.saving.letGo(relay, since)
}

// owe remembers of an event just that it is still to be saved: first where that is
// durable. It is false if there is no room.
func (x *retrier) owe(j *job) bool {
	lost, ok := x.retries.owe(j, time.Now())
	if !ok {
		return false
	}
	if lost != nil {
		x.report.drop("unsaved", 1)
		x.miss(lost.relay, lost.since)
		x.refetch.again(lost.relay, []graspsync.EventID{lost.turn.Item})
	}
	x.owed.Store(int64(len(x.retries.owed)))
	x.absences.known.Forget(j.key.id)
	x.absences.rejected.Want(pending.Note{Incoming: j.incoming, ID: j.key.id})
	return true
}

// paid takes note that an event needs no more tries.
func (x *retrier) paid(id graspsync.EventID) {
	if x.retries.paid(id) {
		x.owed.Store(int64(len(x.retries.owed)))
	}
}

// askAgain asks for events whose bytes were let go of, unless they are here.
func (x *retrier) askAgain(ctx context.Context, relay graspsync.RelayURL, ids []graspsync.EventID) {
	has, err := x.store.has(ctx, ids)
	missing := ids[:0]
	for i, id := range ids {
		if err == nil && has[i] {
			x.absences.rejected.Forget(id)
			x.paid(id)
			continue
		}
		missing = append(missing, id)
	}
	x.refetch.again(relay, missing)
}

// trouble is what the Store or the Policy could not do lately. It belongs to the
// writer.
type trouble struct {
	failures uint64 // ever
	unsaid   int    // since the last line in the log
	saidAt   time.Time
	down     bool // since then nothing of what had failed was saved
	said     bool // it was, and not yet that it works again
}

const sayTrouble = time.Minute // between two lines in the log, however much fails

// troubled takes note that an event could not be judged or saved.
func (x *retrier) troubled(err error) {
	t := &x.trouble
	t.failures++
	t.unsaid++
	t.down = true
	now := time.Now()
	if !t.saidAt.IsZero() && now.Sub(t.saidAt) < sayTrouble {
		return
	}
	x.cfg.Logger.Warn("events could not be saved, and are tried again", "failures", t.unsaid,
		"unsaved", len(x.retries.jobs)+len(x.retries.owed)+1, keyErr, err)
	x.report.observe(StoreFailed{Err: err})
	t.saidAt, t.unsaid, t.said = now, 0, true
}

// savedAgain takes note that what could not be saved before was saved now.
func (x *retrier) savedAgain() {
	t := &x.trouble
	if !t.down {
		return
	}
	t.down = false
	x.saving.works()
	x.retries.hurry(time.Now())
	if t.said {
		t.said = false
		x.cfg.Logger.Info("events can be saved again", "unsaved", len(x.retries.jobs)+len(x.retries.owed))
	}
}
