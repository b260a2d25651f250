package sync

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/shares"
)

const (
	retryFirst = time.Second     // before events are saved again that could not be
	retryMost  = 4 * time.Minute // the same after many failures

	// wholeTries is how often an event is tried, while others could be saved, before
	// its bytes are let go of.
	wholeTries = 4
	// failingShare is the part of the bytes in flight that events may take besides
	// which failed, so that a few that can't be saved take nothing from the others.
	failingShare = 8

	owedFirst = time.Minute   // before an event is asked for again whose bytes were let go of
	owedMost  = 4 * time.Hour // the same after many failures: it is sent to us each time
	maxOwed   = 10_000        // such events; each takes about 250 bytes
	maxAsks   = 13            // for one that does not come, in about a day: its relay has it no more
	askOwed   = 250           // that are asked for at once
	askEvery  = time.Second   // between two such questions

	// missedFor is how long what a relay has counts as incomplete when an event of its
	// was let go of: until the daily pass.
	missedFor = 24 * time.Hour
)

// retries holds what could not be judged or saved, until it can: jobs with their
// events, and of those that fail while others can be saved just the ids, to be
// fetched again. How often something fails never decides that it is given up.
//
// Each job waits longer after each failure. While nothing at all can be saved, all of
// them wait for the same moment, and what is tried then is one call of the Store. What
// is held is bounded by the bytes in flight and its own share. It belongs to the writer.
type retries struct {
	jobs    []*job
	soonest time.Time // when the first of them is due
	owed    map[graspsync.EventID]*owed
	owners  shares.Shares[graspsync.EventID] // of what is owed
	relays  shares.Relays                    // that have some of it
	missed  map[graspsync.RelayURL]*job      // stand in for events that were let go of, until they are due
	askAt   time.Time                        // when the next of these may be asked for; zero: none is owed
	wait    time.Duration                    // while nothing can be saved, 0 if something can
	next    time.Time                        // not before that then
	works   uint64                           // how often the Store saved something
	timer   *time.Timer                      // for the earliest of these times

	room  int64 // bytes that failing jobs may take besides those in flight
	apart int64 // of these, taken
	held  int64 // bytes in flight that waiting jobs hold
}

// owed is an event that is known by its id only and was not saved.
type owed struct {
	relay graspsync.RelayURL
	since time.Time // when it first failed
	tries int
	asks  int       // since it last came
	at    time.Time // of the next one
	owner shares.Owner
	turn  shares.Member[graspsync.EventID]
}

// add has a job tried again.
func (r *retries) add(j *job, now time.Time) {
	j.due = now.Add(backoff.Doubled(retryFirst, retryMost, j.tries))
	if len(r.jobs) == 0 || j.due.Before(r.soonest) {
		r.soonest = j.due
	}
	r.jobs = append(r.jobs, j)
	j.waits = true
	if !j.apart && !j.revived {
		r.held += j.size
	}
	r.arm(now)
}

// take returns jobs that are due, at most so many as are saved at once: those that
// were tried longest ago.
func (r *retries) take(now time.Time) (due []*job) {
	if now.Before(r.next) {
		r.arm(now)
		return nil
	}
	kept := r.jobs[:0]
	r.soonest = time.Time{}
	for _, j := range r.jobs {
		if len(due) < saveBatch && !j.due.After(now) {
			due = append(due, j)
			j.waits = false
			if !j.apart && !j.revived {
				r.held -= j.size
			}
			continue
		}
		if len(kept) == 0 || j.due.Before(r.soonest) {
			r.soonest = j.due
		}
		kept = append(kept, j)
	}
	clear(r.jobs[len(kept):])
	r.jobs = kept
	return due
}

// all returns all jobs, which are not held any more.
func (r *retries) all() []*job {
	jobs := r.jobs
	for _, j := range jobs {
		j.waits = false
	}
	r.jobs, r.held = nil, 0
	return jobs
}

// worked notes that something was saved. If nothing could be before, all is tried
// that waited for that, and news is true.
func (r *retries) worked(now time.Time) (news bool) {
	r.works++
	if r.wait == 0 {
		return false
	}
	r.wait, r.next, r.soonest = 0, time.Time{}, now
	for _, j := range r.jobs {
		j.due = now
	}
	r.arm(now)
	return true
}

// failed notes that of what was due nothing could be saved: it is no use to try the
// rest right now.
func (r *retries) failed(now time.Time) {
	r.wait = min(max(2*r.wait, retryFirst), retryMost)
	r.next = now.Add(r.wait)
}

// owe remembers of an event that it is still to be saved, if there is room for it. For
// that it may forget one of the relay that most is owed of, which it returns: a relay of
// which much can't be saved takes no room from the others.
func (r *retries) owe(j *job, now time.Time) (lost *owed, ok bool) {
	id, relay := j.key.id, j.incoming.Source.Relay
	if r.isOwed(id) {
		return nil, true
	}
	owner := r.relays.Number(relay)
	if len(r.owed) >= maxOwed {
		lost = r.owed[r.owners.Next().Item]
		own := r.owners.Weight(owner)
		if r.owners.Weight(lost.owner) <= own+1 {
			if own == 0 {
				r.relays.Release(owner)
			}
			return nil, false
		}
		r.paid(lost.turn.Item)
	}
	o := &owed{relay: relay, since: j.since, at: now.Add(owedFirst), owner: owner}
	o.turn.Item = id
	lazy.Put(&r.owed, id, o)
	r.owners.Add(&o.turn, owner, 1)
	if at := now.Add(owedFirst); r.askAt.IsZero() || at.Before(r.askAt) {
		r.askAt = at
	}
	r.arm(now)
	return lost, true
}

// miss has what a relay has count as incomplete for a while. It returns what stands for
// that among the jobs that wait.
func (r *retries) miss(relay graspsync.RelayURL, now time.Time) *job {
	j := r.missed[relay]
	if j == nil {
		j = &job{tokens: []*token{newToken(relay)}}
		lazy.Put(&r.missed, relay, j)
	}
	j.due = now.Add(missedFor)
	r.arm(now)
	return j
}

// over returns what stood for what was missed long enough ago.
func (r *retries) over(now time.Time) (jobs []*job) {
	for relay, j := range r.missed {
		if !j.due.After(now) {
			delete(r.missed, relay)
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// came takes note that what is owed was fetched again, and reports whether it is owed.
func (r *retries) came(id graspsync.EventID) bool {
	o := r.owed[id]
	if o != nil {
		o.asks = 0
	}
	return o != nil
}

func (r *retries) isOwed(id graspsync.EventID) bool {
	_, known := r.owed[id]
	return known
}

// paid forgets what was owed. It reports whether it was.
func (r *retries) paid(id graspsync.EventID) bool {
	o := r.owed[id]
	if o == nil {
		return false
	}
	delete(r.owed, id)
	if r.owners.Remove(&o.turn) {
		r.relays.Release(o.owner)
	}
	return true
}

// hurry has all that is owed asked for soon.
func (r *retries) hurry(now time.Time) {
	for _, o := range r.owed {
		o.at, o.tries = now, 0
	}
	if len(r.owed) > 0 {
		r.askAt = now
	}
}

// ask returns what is owed and due, by the relay that had it, and forgets what its relay
// does not serve any more: should anybody, the next pass brings it. While nothing can be
// saved there is no use in asking.
func (r *retries) ask(now time.Time) (due map[graspsync.RelayURL][]graspsync.EventID, gone int) {
	if r.askAt.IsZero() || now.Before(r.askAt) || now.Before(r.next) {
		return nil, 0
	}
	due = make(map[graspsync.RelayURL][]graspsync.EventID)
	n, soonest := 0, time.Time{}
	for id, o := range r.owed {
		if o.asks >= maxAsks && !o.at.After(now) {
			r.paid(id)
			gone++
			continue
		}
		if n < askOwed && !o.at.After(now) {
			n++
			o.asks++
			o.tries++
			o.at = now.Add(backoff.Doubled(owedFirst, owedMost, o.tries))
			due[o.relay] = append(due[o.relay], id)
		}
		if soonest.IsZero() || o.at.Before(soonest) {
			soonest = o.at
		}
	}
	if r.askAt = soonest; !soonest.IsZero() && soonest.Before(now.Add(askEvery)) {
		r.askAt = now.Add(askEvery)
	}
	return due, gone
}

// arm sets the timer.
func (r *retries) arm(now time.Time) {
	at := r.askAt
	earlier := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if len(r.jobs) > 0 {
		earlier(r.soonest)
	}
	for _, j := range r.missed {
		earlier(j.due)
	}
	if at.IsZero() {
		return
	}
	if at.Before(r.next) {
		at = r.next
	}
	if r.timer == nil {
		r.timer = time.NewTimer(at.Sub(now))
		return
	}
	r.timer.Reset(at.Sub(now))
}

// due returns the channel that says when to look, nil if there is nothing.
func (r *retries) due() <-chan time.Time {
	if r.timer == nil || len(r.jobs) == 0 && r.askAt.IsZero() && len(r.missed) == 0 {
		return nil
	}
	return r.timer.C
}
