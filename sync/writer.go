package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// writer is the end of the pipeline: one goroutine judges and saves, so that an event sees
// everything that was accepted before it.
type writer struct {
	cfg      *Config // read-only
	policy   *containedPolicy
	store    *containedStore
	feed     *feed
	holds    *holds
	flights  *flights
	absences *absences
	news     *news
	saving   *saving
	retrier  *retrier
	listings *listings
	report   *report
	toSave   <-chan *job
}

// run works until ctx ends.
func (w *writer) run(ctx context.Context) {
	w.retrier.arm(time.Time{}) // what an earlier process has left
	for {
		select {
		case j := <-w.toSave:
			w.turn(func() { w.process(ctx, more(w.toSave, []*job{j}, saveBatch)) })
		case <-w.news.wake:
			w.turn(func() { w.catchUp(ctx) })
		case <-w.retrier.due():
			w.turn(func() { w.judgeAgain(ctx) })
		case <-ctx.Done():
			return
		}
	}
}

// turn does a part of the work. A panic is a bug of ours, or of the embedder's logger, but
// must cost no more than that.
func (w *writer) turn(work func()) {
	w.flights.turn.Add(1)
	defer w.flights.turn.Add(1)
	defer func() {
		if p := recover(); p != nil {
			w.report.panickedIn(whosePipeline, p)
		}
	}()
	work()
}

// contain does a step of the work on one event. Should that panic, the event is dropped, and
// not looked at again as long as its id is remembered: it would do the same once more. What
// waits for room is not kept any longer either.
func (w *writer) contain(j *job, step func()) {
	defer func() {
		if p := recover(); p != nil {
			w.report.panickedIn(whosePipeline, p)
			w.absences.rejected.Forget(j.key.id)
			w.absences.known.Add(j.key.id)
			if !j.over {
				w.retrier.done(j)
			}
		}
	}()
	step()
}

// catchUp judges again what waits for what the writer is told of.
func (w *writer) catchUp(ctx context.Context) {
	w.flights.unsettled.Add(1) // what waits is taken out of where it is remembered
	defer w.flights.unsettled.Add(-1)
	if w.news.later.Swap(false) {
		w.retrier.arm(time.Time{})
	}
	keys, all := w.fulfilled()
	waiting := append(w.absences.arrived(ctx, keys), w.listings.heard(ctx)...)
	if all {
		waiting = append(waiting, w.absences.rejected.Anything()...)
	}
	w.process(ctx, w.absences.revived(waiting))
}

// fulfilled returns what is here now that events may wait for; all: and more than that. What begins
// to wait does so here, so that where nothing waits it is not worked out what a scan has found.
func (w *writer) fulfilled() (keys []pending.Key, all bool) {
	keys, all = w.news.takeFulfilled()
	if found := w.news.takeFound(); found != nil && !w.absences.rejected.Idle() {
		keys = append(keys, found()...)
	}
	return keys, all
}

// judgeAgain judges and saves again some events that had no room or could not be saved, and requests others of
// which only the ids are left.
func (w *writer) judgeAgain(ctx context.Context) {
	x, now := w.retrier, time.Now()
	x.timer = nil
	if now.Before(x.next) {
		x.arm(x.next)
		return
	}
	next := now.Add(askEvery)
	defer func() { // should this panic, too
		if least := time.Now().Add(turnShare * time.Since(now)); !next.IsZero() && next.Before(least) {
			next = least
		}
		if !next.IsZero() {
			x.arm(next)
		}
	}()
	index, freed := w.absences.rejected, w.news.room()
	waiting, _ := index.InTurn(saveBatch, now, freed, x.workedAt)
	jobs := w.absences.revived(waiting)
	for _, j := range jobs {
		j.again = true
	}
	works, failures := x.works, x.failures
	w.process(ctx, jobs)
	if x.failures != failures && x.works == works {
		x.stuck(now)
	}
	any := true
	if x.wait == 0 && !now.Before(x.askAt) {
		var ask map[graspsync.RelayURL][]graspsync.EventID
		var gone int
		ask, gone, any = index.Overdue(askMost)
		w.report.drop("unsaved", gone)
		x.askAt = now.Add(askEvery)
		for relay, ids := range ask {
			x.askAgain(ctx, relay, ids)
		}
	}
	_, at := index.InTurn(0, now, freed, x.workedAt)
	switch {
	case !at.IsZero() && at.Before(next):
		next = at
	case !any:
		next = time.Time{}
	}
}

// process judges jobs, saves what is accepted, and goes on with what waited for
// that. Where that is much, what comes now has half of the turns.
func (w *writer) process(ctx context.Context, jobs []*job) {
	w.flights.unsettled.Add(1) // what is revived does not count by itself
	defer w.flights.unsettled.Add(-1)
	defer func() { // all of them, should this panic
		left := slices.DeleteFunc(jobs, func(j *job) bool { return j.over })
		if ctx.Err() == nil {
			w.retrier.lose(left)
			return
		}
		for _, j := range left {
			w.retrier.end(j, false)
		}
	}()
	for len(jobs) > 0 {
		if ctx.Err() != nil {
			return
		}
		n := min(len(jobs), saveBatch)
		accepted, woken := w.judge(ctx, jobs[:n])
		woken = append(woken, w.save(ctx, accepted)...)
		woken = append(woken, w.listings.heard(ctx)...)
		if jobs = append(jobs[n:], w.absences.revived(woken)...); len(jobs) > saveBatch && len(jobs) <= w.cfg.fixed.Waiting {
			jobs = append(more(w.toSave, nil, saveBatch/2), jobs...)
		}
	}
}

// judge settles what is not accepted and returns the rest, and what waited for
// something that has come too late to be stored.
func (w *writer) judge(ctx context.Context, jobs []*job) (accepted []*job, woken []*pending.PendingEvent) {
	accepted = make([]*job, 0, len(jobs))
	for _, j := range jobs {
		w.contain(j, func() {
			accept, more := w.judgeOne(ctx, j)
			if woken = append(woken, more...); accept {
				accepted = append(accepted, j)
			}
		})
	}
	return accepted, woken
}

func (w *writer) judgeOne(ctx context.Context, j *job) (accept bool, woken []*pending.PendingEvent) {
	if w.overtaken(j) {
		return false, nil
	}
	if j.foreign {
		w.judgeForeign(j)
		return false, nil
	}
	verdict, err := w.policy.verdict(ctx, j.incoming)
	if err != nil {
		w.retrier.failed(j, fmt.Errorf("judging event %s: %w", j.key.id, err))
		return false, nil
	}
	switch {
	case verdict.Decision == graspsync.Accept:
		return true, nil
	case verdict.Decision == graspsync.Hold:
		return false, w.held(ctx, j)
	case verdict.Decision == graspsync.Depend && len(verdict.DependsOn) > 0:
		w.depend(j, verdict)
	case verdict.Decision == graspsync.Reject:
		w.reject(j, verdict)
	case verdict.Decision == graspsync.Later:
		w.postpone(j, verdict)
	default:
		w.retrier.failed(j, fmt.Errorf("judging event %s: %w", j.key.id, errVerdict))
	}
	return false, nil
}

// judgeForeign rejects an announcement whose signature was not checked. If it concerns us since it came,
// it is requested again, to be verified.
func (w *writer) judgeForeign(j *job) {
	if v, foreign := w.policy.foreign(j.incoming.Event); foreign {
		w.reject(j, v)
		return
	}
	w.absences.lost(w.absences.rejected.Want(j.note()).Unsaved)
	w.retrier.refetch.again(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
	w.retrier.done(j)
}

// overtaken settles a job of whose event another copy was dealt with since it came, or since
// it could not be judged or saved. What has waited may be known, and is judged for that.
func (w *writer) overtaken(j *job) bool {
	if j.revived && j.tries == 0 || !w.absences.known.Has(j.key.id) {
		return false
	}
	w.report.duplicates.Add(1)
	if j.tries > 0 {
		w.absences.rejected.Forget(j.key.id)
		w.retrier.savedAgain()
	}
	w.retrier.done(j)
	return true
}

// reject remembers an event that is not for us. Of one that was not verified only the id is kept, which
// was: if it counts later, it is requested again and verified then.
func (w *writer) reject(j *job, v graspsync.Verdict) {
	w.listings.hearing.waits(v.DependsOn)
	w.unwanted(j, IsRejected, v, pending.Note{Deps: pending.KeysOf(v.DependsOn), Fresh: len(v.DependsOn) > 0 && !j.foreign})
}

// postpone keeps an event to be judged again for which there is no room now.
func (w *writer) postpone(j *job, v graspsync.Verdict) {
	if j.again && j.tries == 0 { // it is kept, and was counted when it came
		w.retrier.done(j)
		return
	}
	w.unwanted(j, IsPostponed, v, pending.Note{Later: true})
	w.retrier.arm(time.Now().Add(turnEvery))
}

// unwanted counts and remembers an event that is not stored. Who is told of it finds that it is so.
func (w *writer) unwanted(j *job, is EventCode, v graspsync.Verdict, n pending.Note) {
	w.report.rejected(j.incoming, is, v)
	n.Incoming, n.ID, n.Size, n.Payer = j.incoming, j.key.id, j.size, payer{stats: j.stats}
	w.absences.note(n)
	w.retrier.done(j)
	w.report.observe(EventRejected{ID: j.key.id, Source: j.incoming.Source, Reason: v.Reason})
}

// held takes note of an event that the Policy keeps, and returns what waited for it: a
// state may be held as well once its announcement is, a deletion of it be accepted.
func (w *writer) held(ctx context.Context, j *job) (woken []*pending.PendingEvent) {
	w.report.say("event held", j.incoming, "by", "the policy")
	w.absences.known.Add(j.key.id)
	e, _ := w.absences.rejected.Look(j.key.id)
	w.absences.rejected.Forget(j.key.id)
	w.report.held.Add(1)
	w.holds.add(j.key.id, heldEvent{source: j.incoming.Source, size: j.size, stats: j.stats, tries: e.Tries})
	if j.incoming.Event.Kind == graspsync.KindAnnouncement {
		if a := w.feed.index.listedBy(j.incoming.Event); a != nil {
			w.feed.hold(a)
		}
	}
	w.news.announced(j.incoming.Event)
	woken = w.absences.arrived(ctx, w.absences.fulfilsHeld(j.incoming.Event))
	w.retrier.done(j)
	return woken
}

func (w *writer) depend(j *job, v graspsync.Verdict) {
	deps, detail := v.DependsOn, graspsync.PrintableAtMost(v.Detail, graspsync.MaxDetail)
	if detail == "" {
		detail = waitedFor(deps)
	}
	w.listings.hearing.waits(deps)
	w.report.say("event waits", j.incoming, "for", deps[0])
	w.report.states.note(j.incoming, EventState{Is: IsWaiting, Detail: detail})
	w.absences.note(pending.Note{
		Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: payer{stats: j.stats}, Deps: pending.KeysOf(deps), Waits: true,
	})
	w.retrier.done(j)
}

// save saves jobs and returns what waited for them.
func (w *writer) save(ctx context.Context, jobs []*job) (woken []*pending.PendingEvent) {
	p := patience{call: w.cfg.fixed.StoreTimeout}
	if len(jobs) == 1 && jobs[0].slow && jobs[0].tries%slowTries != 0 {
		p.call = w.cfg.fixed.StoreTimeout / leastPatience
	}
	return w.saveFor(ctx, jobs, p)
}

// patience is for how long the Store is waited for.
type patience struct {
	call time.Duration // each call
	end  time.Time     // of the attempts to save apart what could not be together; zero: there was none
}

const (
	// leastPatience is the part of StoreTimeout that a few events get that are saved
	// apart, since more of them took too long.
	leastPatience = 16
	// splitPatience is how many times StoreTimeout all of that may take. What is left then
	// is tried another time.
	splitPatience = 2
	// slowTries is every how many tries an event with which the Store came to no end alone
	// gets all of StoreTimeout: others wait for that.
	slowTries = 4
)

// apart is the patience with parts of what took too long.
func (p patience) apart(most time.Duration, now time.Time) patience {
	if p.end.IsZero() {
		p.end = now.Add(splitPatience * most)
	}
	p.call = max(p.call/2, most/leastPatience)
	return p
}

func (p patience) over(now time.Time) bool { return !p.end.IsZero() && !now.Before(p.end) }

func (w *writer) saveFor(ctx context.Context, jobs []*job, p patience) (woken []*pending.PendingEvent) {
	if len(jobs) == 0 {
		return nil
	}
	events, places := incoming(jobs)
	outcomes, err := w.store.save(ctx, events, p.call)
	if err != nil {
		return w.saveFailed(ctx, jobs, p, fmt.Errorf("saving %d events: %w", len(events), err))
	}
	if slices.ContainsFunc(outcomes, func(o graspsync.Outcome) bool { return o.Result != graspsync.Failed }) {
		w.report.depends("store outcome", nil)
		w.retrier.worked()
	} else {
		w.report.depends("store outcome", cmp.Or(outcomes[0].Err, errOutcomes))
	}
	for i, j := range jobs {
		o := &outcomes[places[i]]
		w.contain(j, func() { woken = append(woken, w.outcome(ctx, j, *o)...) })
		if o.Result == graspsync.Stored {
			o.Result = graspsync.Duplicate // for a copy of it
		}
	}
	return woken
}

// incoming returns the events of jobs, each once, and the place of each job's event in
// them: what was judged again comes beside a copy that a relay has just sent.
func incoming(jobs []*job) (events []graspsync.Incoming, places []int) {
	events, places = make([]graspsync.Incoming, 0, len(jobs)), make([]int, len(jobs))
	seen := make(map[graspsync.EventID]int, len(jobs))
	for i, j := range jobs {
		place, ok := seen[j.key.id]
		if !ok {
			place = len(events)
			seen[j.key.id] = place
			events = append(events, j.incoming)
		}
		places[i] = place
	}
	return events, places
}

// saveFailed has jobs tried again that could not be saved together. It may be one of
// them that the Store can't stand, or comes to no end with: when they have failed before,
// one is saved alone, another one each time, and if the Store works for that, or has
// worked for others since, so are the rest, in smaller parts.
func (w *writer) saveFailed(ctx context.Context, jobs []*job, p patience, err error) (woken []*pending.PendingEvent) {
	r, last := w.retrier, len(jobs)-1
	slow := errors.Is(err, context.DeadlineExceeded)
	if slow {
		p = p.apart(w.cfg.fixed.StoreTimeout, time.Now())
	}
	if last > 0 && jobs[0].tries > 0 && !p.over(time.Now()) {
		works := jobs[0].works
		woken = w.saveFor(ctx, jobs[last:], p)
		if jobs = jobs[:last]; r.works != works {
			half := len(jobs) / 2
			woken = append(woken, w.saveFor(ctx, jobs[:half], p)...)
			return append(woken, w.saveFor(ctx, jobs[half:], p)...)
		}
	}
	for _, j := range jobs {
		j.slow = slow && last == 0
		w.retrier.failed(j, err)
	}
	return woken
}

// outcome takes in what the Store did with an event.
func (w *writer) outcome(ctx context.Context, j *job, o graspsync.Outcome) (woken []*pending.PendingEvent) {
	ev := j.incoming.Event
	before, _ := w.absences.rejected.Look(j.key.id)
	w.report.outcome(j.incoming.Source.Kind, o.Result)
	switch o.Result {
	case graspsync.Stored, graspsync.Duplicate:
		w.absences.known.Add(j.key.id)
		w.absences.arrivals.add(j.key.id, time.Now())
		w.absences.rejected.Forget(j.key.id)
		w.report.states.stored(ev)
		w.feed.stored(ev)
		w.news.announced(ev)
		woken = w.absences.arrived(ctx, pending.Fulfils(ev, true))
	case graspsync.Superseded, graspsync.Deleted:
		w.report.say("event not stored", j.incoming, "result", o.Result.String())
		w.report.states.note(j.incoming, unsaved(o))
		w.gone(j)
	case graspsync.Refused:
		w.report.say("event not stored", j.incoming, "result", o.Result.String(), keyErr, o.Err)
		w.report.states.note(j.incoming, unsaved(o))
		w.absences.note(pending.Note{Incoming: j.incoming, ID: j.key.id})
	default:
		w.retrier.failed(j, fmt.Errorf("saving event %s: %w", j.key.id, o.Err))
		return nil
	}
	switch o.Result { //nolint:exhaustive // the others were of no use
	case graspsync.Stored:
		w.brought(j)
	}
	if j.tries > 0 || before.Unsaved {
		w.retrier.savedAgain()
	}
	w.retrier.done(j)
	return woken
}

// gone remembers an event that was accepted but is no more.
func (w *writer) gone(j *job) {
	w.absences.note(pending.Note{Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: payer{stats: j.stats}, Accepted: countsAgain(j.incoming.Event)})
}

// brought counts a new event for the relay that had it.
func (w *writer) brought(j *job) {
	w.report.observe(EventStored(j.incoming))
	w.report.say("event stored", j.incoming)
	if j.stats != nil {
		j.stats.brought()
	}
	if j.from == nil {
		return
	}
	if j.gap {
		j.from.gap(j.incoming)
	}
}
