package sync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

const (
	firstRetryWait = time.Second     // wait before the first retry after a failure
	maxRetryWait   = 4 * time.Minute // wait while no event can be saved

	// turnEvery is the time between two retries. After a retry the writer serves new events for
	// turnShare times as long as the retry took.
	turnEvery = time.Second
	turnShare = 4

	// askEvery is the time between two requests for events by id, maxAsk the maximum number of ids
	// per relay in one request.
	askEvery = time.Minute
	maxAsk   = 5_000

	// After maxMisses failed calls in a row the parts of a failed batch are not tried. One bad
	// event in a full batch causes 9.
	maxMisses = 16
	// leastPatience is the divisor of StoreTimeout for small parts of a batch that was too slow.
	leastPatience = 16
)

// writer is the last stage of the pipeline. Its goroutine judges and saves one batch of new, verified
// events after the other, so that each event is judged after all earlier accepted events.
type writer struct {
	*ingest

	works    uint64         // number of successful saves
	failures uint64         // of the Store or the Policy
	misses   int            // failed saves in a row
	workedAt time.Time      // the last success after complete failure
	pause    backoff.Streak // while nothing can be saved
	turnAt   time.Time      // not before this time are unsaved events retried
	askAt    time.Time      // the next request of ids
}

func (w *writer) run(ctx context.Context) {
	retry := time.NewTicker(turnEvery)
	defer retry.Stop()
	for {
		select {
		case j := <-w.toSave:
			_ = w.telemetry.contain(whosePipeline, func() { w.process(ctx, takeWaiting(w.toSave, []*job{j}, saveBatch)) })
		case <-w.wakeups.wake:
			_ = w.telemetry.contain(whosePipeline, func() { w.judgeWoken(ctx) })
		case <-retry.C:
			_ = w.telemetry.contain(whosePipeline, func() { w.judgeAgain(ctx) })
		case <-ctx.Done():
			return
		}
	}
}

// contain runs a step of the work on one event. After a panic its id counts as known, because the
// same step would panic again.
func (w *writer) contain(j *job, step func()) {
	if w.telemetry.contain(whosePipeline, step) != nil {
		w.markKnown(j.key.id)
		w.end(j, true)
	}
}

// markKnown makes later copies of an event be ignored.
func (w *writer) markKnown(id graspsync.EventID) {
	w.known.Add(id)
	w.rejected.Forget(id)
}

// judgeWoken judges the events again for which wakeFor was called.
func (w *writer) judgeWoken(ctx context.Context) {
	w.inflight.unsettled.Add(1) // revived events are in no table
	defer w.inflight.unsettled.Add(-1)
	keys := slices.Concat(w.wakeups.take()...)
	waiting := append(w.arrived(ctx, keys), w.maintainersChanged(ctx)...)
	if w.wakeupsDropped.Swap(false) {
		waiting = append(waiting, w.rejected.Anything()...)
	}
	w.process(ctx, w.revived(waiting))
}

// judgeAgain processes events that had no room or could not be saved, in random order, so that a
// bad event does not always precede the same events.
func (w *writer) judgeAgain(ctx context.Context) {
	now := time.Now()
	if w.pause.Waits(now) || now.Before(w.turnAt) {
		return
	}
	defer func() { w.turnAt = time.Now().Add(turnShare * time.Since(now)) }() // also after a panic
	waiting := w.rejected.InTurn(saveBatch, now, w.workedAt)
	if len(waiting) > 0 {
		rand.Shuffle(len(waiting), func(a, b int) { waiting[a], waiting[b] = waiting[b], waiting[a] })
		jobs := w.revived(waiting)
		for _, j := range jobs {
			j.retrying = true
		}
		works, failures := w.works, w.failures
		w.misses = 0
		w.process(ctx, jobs)
		if w.failures != failures && w.works == works {
			w.pause.Fail(now, firstRetryWait, maxRetryWait)
			w.savesNothing.Store(true)
		}
	}
	if w.pause.Times == 0 && !now.Before(w.askAt) {
		w.askAt = now.Add(askEvery)
		ask, gone := w.rejected.Overdue(maxAsk, w.workedAt)
		w.telemetry.drop("unsaved", gone)
		w.refetchMissing(ctx, ask)
	}
}

// process judges jobs, saves the accepted events and continues with events that waited for these. If
// many events waited, new events get half of the batches.
func (w *writer) process(ctx context.Context, jobs []*job) {
	w.inflight.unsettled.Add(1) // woken events are in no table
	defer w.inflight.unsettled.Add(-1)
	defer func() { // also after a panic
		for _, j := range jobs {
			w.end(j, false)
		}
	}()
	for len(jobs) > 0 && ctx.Err() == nil {
		n := min(len(jobs), saveBatch)
		accepted, woken := w.judge(ctx, jobs[:n])
		woken = append(woken, w.save(ctx, accepted, w.cfg.constants.StoreTimeout)...)
		woken = append(woken, w.maintainersChanged(ctx)...)
		if jobs = append(jobs[n:], w.revived(woken)...); len(jobs) > saveBatch && len(jobs) <= w.cfg.constants.Waiting {
			jobs = append(takeWaiting(w.toSave, nil, saveBatch/2), jobs...)
		}
	}
}

// judge returns the accepted jobs and settles the other jobs. woken are the events that waited for an
// event that is held now.
func (w *writer) judge(ctx context.Context, jobs []*job) (accepted []*job, woken []*pending.PendingEvent) {
	accepted = make([]*job, 0, len(jobs))
	for _, j := range jobs {
		w.contain(j, func() {
			switch {
			case !j.revived && w.known.Has(j.key.id): // another copy was processed in the meantime
				w.end(j, true)
				return
			case j.foreign:
				w.judgeForeign(j)
				return
			}
			verdict, err := w.verdict(ctx, j.incoming)
			if err != nil {
				w.failed(j, fmt.Errorf("judging event %s: %w", j.key.id, err))
				return
			}
			switch verdict.Decision {
			case graspsync.Accept:
				accepted = append(accepted, j)
			case graspsync.Hold:
				woken = append(woken, w.held(ctx, j)...)
			case graspsync.Depend:
				w.depend(j, verdict)
			case graspsync.Reject:
				w.reject(j, verdict)
			case graspsync.Later:
				w.postpone(j, verdict)
			}
		})
	}
	return accepted, woken
}

var (
	errVerdict = errors.New("the Policy gave no valid verdict")
	errHolder  = errors.New("the Policy held an event, and Config.Holder is not set: set it to what tells which events are held")
)

const (
	reasonFuture  = "invalid: dated too far ahead"
	reasonExpired = "invalid: event is expired"
)

func (g *ingest) verdict(ctx context.Context, in graspsync.Incoming) (v graspsync.Verdict, err error) {
	// Compare seconds, because the largest timestamps do not fit into a time.Time.
	if in.Event.CreatedAt > nostr.Timestamp(time.Now().Add(FutureTolerance).Unix()) {
		return graspsync.Verdict{Decision: graspsync.Later, Reason: reasonFuture}, nil
	}
	if at, expires := nip34.Expiration(in.Event.Event); expires && at <= nostr.Now() { // NIP-40
		return reject(reasonExpired), nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.constants.StoreTimeout)
	defer cancel()
	defer g.telemetry.recovered(&err, "policy judge")
	switch v, err = g.policy.Judge(ctx, in.Event, in.Source, g.view); { // by default a GRASPPolicy after the Rules
	case err != nil:
	case v.Decision < graspsync.Accept || v.Decision > graspsync.Later || v.Decision == graspsync.Depend && len(v.DependsOn) == 0:
		err = errVerdict
	case v.Decision == graspsync.Hold && g.cfg.Holder == nil:
		err = errHolder // without an error the event would be requested again and again
	}
	return v, err
}

// judgeForeign rejects an announcement with an unchecked signature. If its author is recognized by
// now, it is requested again and verified.
func (w *writer) judgeForeign(j *job) {
	if v, foreign := w.foreign(j.incoming.Event); foreign {
		w.reject(j, v)
		return
	}
	n := j.note()
	n.Wanted = true
	w.remember(n)
	w.refetch(j.incoming.Source.Relay, []graspsync.EventID{j.key.id})
	w.end(j, true)
}

func (w *writer) reject(j *job, v graspsync.Verdict) {
	n := j.note()
	n.Deps = pending.KeysOf(v.DependsOn)
	n.Whole = len(v.DependsOn) > 0 && !j.foreign
	w.keepRefused(j, IsRejected, v, n)
}

// postpone keeps an event without room for a later judgment.
func (w *writer) postpone(j *job, v graspsync.Verdict) {
	if s, _ := w.rejected.Look(j.key.id); j.retrying && !s.Unsaved { // the event was counted when it arrived
		w.end(j, true)
		return
	}
	n := j.note()
	n.Later = true
	w.keepRefused(j, IsPostponed, v, n)
}

func (w *writer) keepRefused(j *job, is StateCode, v graspsync.Verdict, n pending.Note) {
	w.telemetry.refuse(j.incoming, is, v)
	w.keep(j, n)
	w.telemetry.observe(Observation{Is: IsRejected, Source: j.incoming.Source, Event: j.incoming.Event, Reason: v.Reason})
}

// held records that the Policy holds an event, and returns the events that waited for the hold.
func (w *writer) held(ctx context.Context, j *job) (woken []*pending.PendingEvent) {
	w.telemetry.logEvent("event held", j.incoming, "by", "the policy")
	e, _ := w.rejected.Look(j.key.id)
	w.markKnown(j.key.id)
	w.telemetry.held.Add(1)
	n := j.note()
	n.Tries = e.Tries
	w.inflight.addHeld(n)
	woken = w.arrived(ctx, w.followHeld(j.incoming.Event))
	w.end(j, true)
	return woken
}

func (w *writer) depend(j *job, v graspsync.Verdict) {
	deps, detail := v.DependsOn, graspsync.PrintableAtMost(v.Detail, graspsync.MaxDetail)
	if detail == "" {
		detail = waitedFor(deps)
	}
	w.telemetry.logEvent("event waits", j.incoming, "for", deps[0])
	w.telemetry.record(j.incoming, EventState{Is: IsWaiting, Detail: detail})
	n := j.note()
	n.Deps, n.Whole = pending.KeysOf(deps), true
	w.keep(j, n)
}

// save saves jobs and returns the events that waited for a saved event. If a call fails, the halves of
// the batch are saved, because one event may be the cause. patience limits the call.
func (w *writer) save(ctx context.Context, jobs []*job, patience time.Duration) (woken []*pending.PendingEvent) {
	if len(jobs) == 0 {
		return nil
	}
	// Two jobs may have the same event: a revived event and a new copy.
	events, places := make([]graspsync.Incoming, 0, len(jobs)), make(map[graspsync.EventID]int, len(jobs))
	for _, j := range jobs {
		if _, ok := places[j.key.id]; !ok {
			places[j.key.id] = len(events)
			events = append(events, j.incoming)
		}
	}
	outcomes, err := w.saveEvents(ctx, events, patience)
	if err != nil {
		w.misses++
		if errors.Is(err, context.DeadlineExceeded) {
			patience = max(patience/2, w.cfg.constants.StoreTimeout/leastPatience)
		}
		if half := len(jobs) / 2; half > 0 && w.misses <= maxMisses {
			woken = w.save(ctx, jobs[:half], patience)
			return append(woken, w.save(ctx, jobs[half:], patience)...)
		}
		for _, j := range jobs {
			w.failed(j, fmt.Errorf("saving %d events: %w", len(events), err))
		}
		return nil
	}
	if slices.ContainsFunc(outcomes, func(o graspsync.Outcome) bool { return o.Result != graspsync.Failed }) {
		w.telemetry.depends("store outcome", nil)
		w.worked()
	} else {
		w.telemetry.depends("store outcome", cmp.Or(outcomes[0].Err, errOutcomes))
	}
	for _, j := range jobs {
		o := &outcomes[places[j.key.id]]
		w.contain(j, func() { woken = append(woken, w.outcome(ctx, j, *o)...) })
		if o.Result == graspsync.Stored {
			o.Result = graspsync.Duplicate // another copy was stored
		}
	}
	return woken
}

var errOutcomes = errors.New("the Store gave another number of outcomes than events")

func (w *writer) saveEvents(ctx context.Context, events []graspsync.Incoming, patience time.Duration) (outcomes []graspsync.Outcome, err error) {
	defer w.telemetry.recovered(&err, "store save")
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	outcomes, err = w.store.Save(ctx, events)
	if err == nil && len(outcomes) != len(events) {
		err = errOutcomes
	}
	return outcomes, err
}

func (w *writer) outcome(ctx context.Context, j *job, o graspsync.Outcome) (woken []*pending.PendingEvent) {
	ev := j.incoming.Event
	w.telemetry.outcome(j.incoming.Source.Kind, o.Result)
	switch o.Result {
	case graspsync.Stored, graspsync.Duplicate:
		w.markKnown(j.key.id)
		w.telemetry.stored(ev)
		w.self.stored(ev) // the plan follows what the event adds
		woken = w.arrived(ctx, pending.Fulfils(ev, true))
		if o.Result == graspsync.Stored {
			w.countStored(j)
		}
		w.end(j, true)
	case graspsync.Superseded, graspsync.Deleted, graspsync.Refused:
		w.telemetry.logEvent("event not stored", j.incoming, "result", o.Result.String(), keyErr, o.Err)
		w.telemetry.record(j.incoming, unsaved(o))
		n := j.note()
		n.Accepted = o.Result != graspsync.Refused && countsAgain(ev)
		w.keep(j, n)
	default:
		w.failed(j, fmt.Errorf("saving event %s: %w", j.key.id, o.Err))
	}
	return woken
}

func (w *writer) countStored(j *job) {
	w.telemetry.observe(Observation{Is: IsStored, Source: j.incoming.Source, Event: j.incoming.Event})
	w.telemetry.logEvent("event stored", j.incoming)
	if j.stats != nil {
		j.stats.stored.Add(1)
	}
	if j.from != nil && j.gap {
		j.from.gap(j.incoming)
	}
}

func (w *writer) worked() {
	w.works++
	w.misses = 0
	if w.pause.Times > 0 {
		w.pause, w.workedAt = backoff.Streak{}, time.Now()
		w.savesNothing.Store(false)
		w.cfg.Logger.Info("saving events succeeded again", "unsaved", w.rejected.Unsaved())
	}
}

// failed schedules a retry of a job whose event could not be judged or saved. If an event of history
// has no room, its batch fails and is fetched again.
func (w *writer) failed(j *job, err error) {
	w.telemetry.failed.Add(1)
	w.telemetry.record(j.incoming, EventState{Is: IsFailing, Detail: graspsync.Printable(err.Error())})
	w.failures++
	if w.telemetry.logRate.Allow(limit.Stranger{ID: "saving"}, 1) {
		w.cfg.Logger.Warn("saving events failed, will retry", "unsaved", w.rejected.Unsaved()+1, keyErr, err)
	}
	w.known.Forget(j.key.id) // an earlier result no longer counts
	if !j.revived && j.incoming.Source.Kind != graspsync.Live && !w.rejected.HasRoom(j.size) {
		w.end(j, false)
		return
	}
	n := j.note()
	n.Unsaved = true
	w.keep(j, n)
}

// keep settles a job whose event is not stored.
func (w *writer) keep(j *job, n pending.Note) {
	w.remember(n)
	w.end(j, true)
}

// end settles a job once. ok is false if its event was lost.
func (w *writer) end(j *job, ok bool) {
	if !j.settled && !j.revived {
		w.inflight.settled(j, ok)
	}
	j.settled = true
}

// remember records the state of a pending event and counts evicted records.
func (g *ingest) remember(n pending.Note) {
	d := g.rejected.Add(n)
	g.telemetry.drop("waiting", d.Waiting)
	g.telemetry.drop("postponed", d.Later)
	g.telemetry.drop("remembered", d.Remembered)
	g.telemetry.drop("unsaved", d.Unsaved)
}

// arrived returns the whole events that waited for any of keys, and requests the other events.
func (g *ingest) arrived(ctx context.Context, keys []pending.Key) []*pending.PendingEvent {
	whole, ask := g.rejected.Arrived(keys)
	g.refetchMissing(ctx, ask)
	return whole
}

// refetchMissing requests events by id, unless they are stored.
func (g *ingest) refetchMissing(ctx context.Context, ask map[graspsync.RelayURL][]graspsync.EventID) {
	for relay, ids := range ask {
		has, err := g.has(ctx, ids)
		missing := ids[:0]
		for i, id := range ids {
			if err == nil && has[i] {
				g.rejected.Forget(id)
				continue
			}
			g.known.Forget(id)
			missing = append(missing, id)
		}
		g.refetch(relay, missing)
	}
}

func (g *ingest) revived(waiting []*pending.PendingEvent) []*job {
	jobs := make([]*job, len(waiting))
	for i, w := range waiting {
		stats, _ := w.Payer.(*relayStats)
		jobs[i] = &job{key: copyKey{id: w.ID}, incoming: w.Incoming, size: w.Size, stats: stats, revived: true}
	}
	return jobs
}

// maintainersChanged returns the events to judge again after announcements were added or removed.
func (w *writer) maintainersChanged(ctx context.Context) (woken []*pending.PendingEvent) {
	changed, all := w.index.TakeNews()
	if all {
		return w.rejected.Anything()
	}
	if w.rejected.Idle() {
		return nil
	}
	for _, identifier := range slices.Sorted(maps.Keys(changed)) {
		keys := slices.DeleteFunc(w.fulfilled(identifier), func(k pending.Key) bool { return !w.rejected.Awaits(k) })
		woken = append(woken, w.arrived(ctx, keys)...)
	}
	return woken
}

// fulfilled returns the dependencies that recognized authors fulfill. If the Policy cannot tell, all
// known people count as recognized.
func (w *writer) fulfilled(identifier string) (keys []pending.Key) {
	recognized := w.recognized(identifier)
	if recognized == nil {
		for _, a := range w.view.Family(identifier) {
			keys = append(keys, onRecognized(a)...)
		}
	}
	for who, isMember := range recognized {
		keys = append(keys, pending.KeyOf(graspsync.OnBecomesListed(identifier, who)))
		if isMember {
			keys = append(keys, pending.KeyOf(graspsync.OnBecomesMaintainer(identifier, who)))
		}
	}
	return keys
}

// countsAgain reports whether an accepted event may be judged again later.
func countsAgain(ev graspsync.Event) bool {
	return ev.Kind != graspsync.KindDeletion && ev.Kind != graspsync.KindVanish
}
