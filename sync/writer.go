package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// writer is the last stage of the pipeline. Its goroutine judges and saves one batch after the
// other, so that each event is judged after all earlier accepted events. The fields belong to the
// goroutine.
type writer struct {
	*ingest

	// maintainers are the recognized authors of each identifier at the last check, without authors
	// of whom an event was rejected since. The value is true for authors whose states are accepted
	// too.
	maintainers *limit.Table[string, map[graspsync.PubKey]bool]

	works    uint64         // number of successful saves
	workedAt time.Time      // the last success after complete failure, or of an event that had failed
	pause    backoff.Streak // while nothing can be saved
	askAt    time.Time      // the next request of ids
	timer    *time.Timer    // of the next retry, nil if none is due
	turnAt   time.Time      // when timer fires

	failures uint64    // of the Store or the Policy
	unsaid   int       // failures since the last line in the log
	saidAt   time.Time // the last line in the log
	down     bool      // no failed event was saved since the failure
	said     bool      // the failure was logged, and the recovery was not
}

func newWriter(g *ingest) *writer {
	return &writer{ingest: g, maintainers: limit.NewTable[string, map[graspsync.PubKey]bool](maxMaintainers, maxMaintainers)}
}

func (w *writer) run(ctx context.Context) {
	w.arm(time.Time{}) // events of the previous process
	for {
		select {
		case j := <-w.toSave:
			w.turn(func() { w.process(ctx, more(w.toSave, []*job{j}, saveBatch)) })
		case <-w.reprocess.wake:
			w.turn(func() { w.catchUp(ctx) })
		case <-w.due():
			w.turn(func() { w.judgeAgain(ctx) })
		case <-ctx.Done():
			return
		}
	}
}

// turn runs a part of the work and recovers a panic.
func (w *writer) turn(work func()) {
	w.inflight.turn.Add(1)
	defer w.inflight.turn.Add(1)
	defer func() {
		if p := recover(); p != nil {
			w.telemetry.panickedIn(whosePipeline, p)
		}
	}()
	work()
}

// contain runs a step of the work on one event. After a panic the event is dropped and its id
// counts as known, because the same step would panic again.
func (w *writer) contain(j *job, step func()) {
	defer func() {
		if p := recover(); p != nil {
			w.telemetry.panickedIn(whosePipeline, p)
			w.rejected.Forget(j.key.id)
			w.known.Add(j.key.id)
			if !j.over {
				w.done(j)
			}
		}
	}()
	step()
}

// catchUp judges the events again that reprocessQueue reports.
func (w *writer) catchUp(ctx context.Context) {
	w.inflight.unsettled.Add(1) // revived events are in no table
	defer w.inflight.unsettled.Add(-1)
	if w.reprocess.later.Swap(false) {
		w.arm(time.Time{})
	}
	keys, all := w.reprocess.takeFulfilled()
	waiting := append(w.arrived(ctx, keys), w.maintainersChanged(ctx)...)
	if all {
		waiting = append(waiting, w.rejected.Anything()...)
	}
	w.process(ctx, w.revived(waiting))
}

// judgeAgain processes events that had no room or could not be saved, and requests events by id of
// which only the id is left.
func (w *writer) judgeAgain(ctx context.Context) {
	now := time.Now()
	w.timer = nil
	if w.pause.Waits(now) {
		w.arm(w.pause.Until)
		return
	}
	next := now.Add(askEvery)
	defer func() { // also after a panic
		if least := time.Now().Add(turnShare * time.Since(now)); !next.IsZero() && next.Before(least) {
			next = least
		}
		if !next.IsZero() {
			w.arm(next)
		}
	}()
	index, freed := w.rejected, w.reprocess.room()
	waiting, _ := index.InTurn(saveBatch, now, freed, w.workedAt)
	jobs := w.revived(waiting)
	for _, j := range jobs {
		j.again = true
	}
	works, failures := w.works, w.failures
	w.process(ctx, jobs)
	if w.failures != failures && w.works == works {
		w.pause.Again(now, retryFirst, retryMost)
		w.health.stuck(now)
	}
	any := true
	if w.pause.Times == 0 && !now.Before(w.askAt) {
		var ask map[graspsync.RelayURL][]graspsync.EventID
		var gone int
		ask, gone, any = index.Overdue(askMost)
		w.telemetry.drop("unsaved", gone)
		w.askAt = now.Add(askEvery)
		for relay, ids := range ask {
			w.askAgain(ctx, relay, ids)
		}
	}
	_, at := index.InTurn(0, now, freed, w.workedAt)
	switch {
	case !at.IsZero() && at.Before(next):
		next = at
	case !any:
		next = time.Time{}
	}
}

// process judges jobs, saves the accepted events and continues with the events that waited for
// them. If many events waited, new events get half of the batches.
func (w *writer) process(ctx context.Context, jobs []*job) {
	w.inflight.unsettled.Add(1) // revived events are in no table
	defer w.inflight.unsettled.Add(-1)
	defer func() { // also after a panic
		left := slices.DeleteFunc(jobs, func(j *job) bool { return j.over })
		if ctx.Err() == nil {
			w.requestAgain(left)
			return
		}
		for _, j := range left {
			w.end(j, false)
		}
	}()
	for len(jobs) > 0 {
		if ctx.Err() != nil {
			return
		}
		n := min(len(jobs), saveBatch)
		accepted, woken := w.judge(ctx, jobs[:n])
		woken = append(woken, w.save(ctx, accepted)...)
		woken = append(woken, w.maintainersChanged(ctx)...)
		if jobs = append(jobs[n:], w.revived(woken)...); len(jobs) > saveBatch && len(jobs) <= w.cfg.constants.Waiting {
			jobs = append(more(w.toSave, nil, saveBatch/2), jobs...)
		}
	}
}

// judge returns the accepted jobs and settles the others. woken are the events that waited for a
// held event.
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
		w.failed(j, fmt.Errorf("judging event %s: %w", j.key.id, err))
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
		w.failed(j, fmt.Errorf("judging event %s: %w", j.key.id, errVerdict))
	}
	return false, nil
}

// judgeForeign rejects an announcement with an unchecked signature. If its author is recognized by
// now, it is requested again and verified.
func (w *writer) judgeForeign(j *job) {
	if v, foreign := w.policy.foreign(j.incoming.Event); foreign {
		w.reject(j, v)
		return
	}
	w.lost(w.rejected.Want(j.note()).Unsaved)
	w.refetch(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
	w.done(j)
}

// overtaken settles a job if another copy of its event was processed in the meantime. A known event
// that waited is judged anyway.
func (w *writer) overtaken(j *job) bool {
	if j.revived && j.tries == 0 || !w.known.Has(j.key.id) {
		return false
	}
	w.telemetry.duplicates.Add(1)
	if j.tries > 0 {
		w.rejected.Forget(j.key.id)
		w.savedAgain()
	}
	w.done(j)
	return true
}

// reject records a rejected event. If its signature was not checked, only the id is kept, and the
// event is requested again when its dependency arrives.
func (w *writer) reject(j *job, v graspsync.Verdict) {
	w.awaitMaintainers(v.DependsOn)
	w.unwanted(j, IsRejected, v, pending.Note{Deps: pending.KeysOf(v.DependsOn), Fresh: len(v.DependsOn) > 0 && !j.foreign})
}

// postpone keeps an event without room for a later judgment.
func (w *writer) postpone(j *job, v graspsync.Verdict) {
	if j.again && j.tries == 0 { // the event was counted when it arrived
		w.done(j)
		return
	}
	w.unwanted(j, IsPostponed, v, pending.Note{Later: true})
	w.arm(time.Now().Add(turnEvery))
}

// unwanted counts and records an event that is not stored. The observation comes last, when the
// records are complete.
func (w *writer) unwanted(j *job, is EventCode, v graspsync.Verdict, n pending.Note) {
	w.telemetry.refuse(j.incoming, is, v)
	n.Incoming, n.ID, n.Size, n.Payer = j.incoming, j.key.id, j.size, payer{stats: j.stats}
	w.note(n)
	w.done(j)
	w.telemetry.observe(EventRejected{ID: j.key.id, Source: j.incoming.Source, Reason: v.Reason})
}

// held records that the Policy holds an event, and returns the events that waited for that. States
// of a held announcement can then be held too.
func (w *writer) held(ctx context.Context, j *job) (woken []*pending.PendingEvent) {
	w.telemetry.say("event held", j.incoming, "by", "the policy")
	w.known.Add(j.key.id)
	e, _ := w.rejected.Look(j.key.id)
	w.rejected.Forget(j.key.id)
	w.telemetry.held.Add(1)
	w.sources.add(j.key.id, heldSource{source: j.incoming.Source, size: j.size, stats: j.stats, tries: e.Tries})
	if j.incoming.Event.Kind == graspsync.KindAnnouncement {
		if a := w.self.index.ListedBy(j.incoming.Event); a != nil {
			w.self.hold(a)
		}
	}
	w.self.index.Note(j.incoming.Event)
	woken = w.arrived(ctx, w.fulfilsHeld(j.incoming.Event))
	w.done(j)
	return woken
}

func (w *writer) depend(j *job, v graspsync.Verdict) {
	deps, detail := v.DependsOn, graspsync.PrintableAtMost(v.Detail, graspsync.MaxDetail)
	if detail == "" {
		detail = waitedFor(deps)
	}
	w.awaitMaintainers(deps)
	w.telemetry.say("event waits", j.incoming, "for", deps[0])
	w.telemetry.states.note(j.incoming, EventState{Is: IsWaiting, Detail: detail})
	w.note(pending.Note{
		Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: payer{stats: j.stats}, Deps: pending.KeysOf(deps), Waits: true,
	})
	w.done(j)
}

// save saves jobs and returns the events that waited for them.
func (w *writer) save(ctx context.Context, jobs []*job) (woken []*pending.PendingEvent) {
	p := savePatience{call: w.cfg.constants.StoreTimeout}
	if len(jobs) == 1 && jobs[0].slow && jobs[0].tries%slowTries != 0 {
		p.call = w.cfg.constants.StoreTimeout / leastPatience
	}
	return w.saveFor(ctx, jobs, p)
}

// savePatience limits the time of calls of the Store.
type savePatience struct {
	call time.Duration // of each call
	end  time.Time     // of all attempts to save parts of a failed batch; zero: no limit
}

const (
	// leastPatience is the divisor of StoreTimeout for small parts of a batch that was too slow.
	leastPatience = 16
	// splitPatience is the multiple of StoreTimeout for all parts of a batch together. The
	// remaining parts are retried later.
	splitPatience = 2
	// slowTries: an event that was too slow alone gets the whole StoreTimeout only in every fourth
	// retry, because other events wait for it.
	slowTries = 4
)

// apart returns the patience for parts of a batch that was too slow.
func (p savePatience) apart(most time.Duration, now time.Time) savePatience {
	if p.end.IsZero() {
		p.end = now.Add(splitPatience * most)
	}
	p.call = max(p.call/2, most/leastPatience)
	return p
}

func (p savePatience) over(now time.Time) bool { return !p.end.IsZero() && !now.Before(p.end) }

func (w *writer) saveFor(ctx context.Context, jobs []*job, p savePatience) (woken []*pending.PendingEvent) {
	if len(jobs) == 0 {
		return nil
	}
	events, places := incoming(jobs)
	outcomes, err := w.store.save(ctx, events, p.call)
	if err != nil {
		return w.saveFailed(ctx, jobs, p, fmt.Errorf("saving %d events: %w", len(events), err))
	}
	if slices.ContainsFunc(outcomes, func(o graspsync.Outcome) bool { return o.Result != graspsync.Failed }) {
		w.telemetry.depends("store outcome", nil)
		w.worked()
	} else {
		w.telemetry.depends("store outcome", cmp.Or(outcomes[0].Err, errOutcomes))
	}
	for i, j := range jobs {
		o := &outcomes[places[i]]
		w.contain(j, func() { woken = append(woken, w.outcome(ctx, j, *o)...) })
		if o.Result == graspsync.Stored {
			o.Result = graspsync.Duplicate // another copy was stored
		}
	}
	return woken
}

// incoming returns the distinct events of jobs, and the index of each job's event. Two jobs may
// have the same event: a revived event and a new copy.
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

// saveFailed retries jobs that could not be saved together, because one event may be the cause. If
// the jobs have failed before, the last one is saved alone. The others are saved in halves if any
// save succeeded since their last attempt.
func (w *writer) saveFailed(ctx context.Context, jobs []*job, p savePatience, err error) (woken []*pending.PendingEvent) {
	last := len(jobs) - 1
	slow := errors.Is(err, context.DeadlineExceeded)
	if slow {
		p = p.apart(w.cfg.constants.StoreTimeout, time.Now())
	}
	if last > 0 && jobs[0].tries > 0 && !p.over(time.Now()) {
		works := jobs[0].works
		woken = w.saveFor(ctx, jobs[last:], p)
		if jobs = jobs[:last]; w.works != works {
			half := len(jobs) / 2
			woken = append(woken, w.saveFor(ctx, jobs[:half], p)...)
			return append(woken, w.saveFor(ctx, jobs[half:], p)...)
		}
	}
	for _, j := range jobs {
		j.slow = slow && last == 0
		w.failed(j, err)
	}
	return woken
}

func (w *writer) outcome(ctx context.Context, j *job, o graspsync.Outcome) (woken []*pending.PendingEvent) {
	ev := j.incoming.Event
	before, _ := w.rejected.Look(j.key.id)
	w.telemetry.outcome(j.incoming.Source.Kind, o.Result)
	switch o.Result {
	case graspsync.Stored, graspsync.Duplicate:
		w.known.Add(j.key.id)
		w.rejected.Forget(j.key.id)
		w.telemetry.states.stored(ev)
		w.self.stored(ev)
		woken = w.arrived(ctx, pending.Fulfils(ev, true))
	case graspsync.Superseded, graspsync.Deleted:
		w.telemetry.say("event not stored", j.incoming, "result", o.Result.String())
		w.telemetry.states.note(j.incoming, unsaved(o))
		w.gone(j)
	case graspsync.Refused:
		w.telemetry.say("event not stored", j.incoming, "result", o.Result.String(), keyErr, o.Err)
		w.telemetry.states.note(j.incoming, unsaved(o))
		w.note(pending.Note{Incoming: j.incoming, ID: j.key.id})
	default:
		w.failed(j, fmt.Errorf("saving event %s: %w", j.key.id, o.Err))
		return nil
	}
	switch o.Result { //nolint:exhaustive // others are not new
	case graspsync.Stored:
		w.brought(j)
	}
	if j.tries > 0 || before.Unsaved {
		w.savedAgain()
	}
	w.done(j)
	return woken
}

// gone records an event that was accepted before and is now superseded or deleted.
func (w *writer) gone(j *job) {
	w.note(pending.Note{Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: payer{stats: j.stats}, Accepted: countsAgain(j.incoming.Event)})
}

func (w *writer) brought(j *job) {
	w.telemetry.observe(EventStored(j.incoming))
	w.telemetry.say("event stored", j.incoming)
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
