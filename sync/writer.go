package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/allowance"
)

// writeLoop is the end of the pipeline: one goroutine judges and saves, so that an
// event sees everything that was accepted before it.
func (g *ingest) writeLoop(ctx context.Context) {
	for {
		select {
		case j := <-g.toSave:
			jobs := more(g.toSave, []*job{j}, saveBatch)
			g.process(ctx, jobs)
		case <-g.wake:
			keys, all := g.takeFulfilled()
			waiting := g.arrived(ctx, keys)
			if all {
				waiting = append(waiting, g.rejected.anything()...)
			}
			g.process(ctx, g.revived(waiting))
		case <-g.retries.due():
			g.process(ctx, g.retries.take())
		case <-ctx.Done():
			g.giveUp(g.retries.take())
			return
		}
	}
}

// giveUp settles jobs that will not be tried again.
func (g *ingest) giveUp(jobs []*job) {
	for _, j := range jobs {
		g.end(j, false)
	}
}

// revived makes jobs of events that have waited. Nobody counts on them any more.
func (g *ingest) revived(waiting []*waitingEvent) []*job {
	jobs := make([]*job, len(waiting))
	for i, w := range waiting {
		jobs[i] = &job{key: copyKey{id: w.id}, incoming: w.incoming, size: w.size, revived: true}
	}
	g.waiting.Store(int64(g.rejected.waiting()))
	return jobs
}

// process judges jobs, saves what is accepted, and goes on with what waited for
// that.
func (g *ingest) process(ctx context.Context, jobs []*job) {
	g.unsettled.Add(1) // what is revived does not count by itself
	defer g.unsettled.Add(-1)
	for len(jobs) > 0 {
		if ctx.Err() != nil {
			g.giveUp(jobs)
			return
		}
		n := min(len(jobs), saveBatch)
		accepted, woken := g.judge(ctx, jobs[:n])
		woken = append(woken, g.save(ctx, accepted)...)
		jobs = append(jobs[n:], g.revived(woken)...)
	}
}

// judge settles what is not accepted and returns the rest, and what waited for
// something that has come too late to be stored.
func (g *ingest) judge(ctx context.Context, jobs []*job) (accepted []*job, woken []*waitingEvent) {
	accepted = make([]*job, 0, len(jobs))
	for _, j := range jobs {
		verdict, err := g.verdict(ctx, j.incoming)
		if err != nil {
			g.failed(j, fmt.Errorf("judging event %s: %w", j.key.id, err))
			continue
		}
		switch {
		case verdict.Decision == Accept && g.expired(j.incoming.Event):
			woken = append(woken, g.reject(ctx, j, reject(reasonExpired), true)...)
		case verdict.Decision == Accept:
			accepted = append(accepted, j)
		case verdict.Decision == Hold:
			woken = append(woken, g.held(ctx, j)...)
		case verdict.Decision == Depend && len(verdict.DependsOn) > 0:
			g.depend(j, verdict.DependsOn)
		case verdict.Decision == Reject:
			g.reject(ctx, j, verdict, false)
		case verdict.Decision == Later:
			g.postpone(j, verdict.Reason)
		default:
			g.failed(j, fmt.Errorf("judging event %s: %w", j.key.id, errVerdict))
		}
	}
	return accepted, woken
}

// expired reports whether an event's time is over (NIP-40). That is asked last: what
// refers to it counts as if it were here.
func (g *ingest) expired(ev *nostr.Event) bool {
	at, ok := nip34.Expiration(ev)
	return ok && at <= nostr.Now()
}

var errVerdict = errors.New("the Policy gave no valid verdict")

const (
	reasonFuture  = "invalid: dated too far ahead"
	reasonExpired = "invalid: expired"
)

// verdict is the policy's, after what takes a clock.
func (g *ingest) verdict(ctx context.Context, in Incoming) (v Verdict, err error) {
	// In seconds: the latest of them do not fit into a time.
	if in.Event.CreatedAt > nostr.Timestamp(time.Now().Add(g.cfg.FutureTolerance).Unix()) {
		return Verdict{Decision: Later, Reason: reasonFuture}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.StoreTimeout)
	defer cancel()
	defer g.counters.recovered(&err, "policy")
	return g.policy.Judge(ctx, in.Event, in.Source, g.view)
}

// failed has a job tried again whose event could not be judged or saved: that is no
// verdict on the event. It stays in the pipeline and keeps its share of the bytes
// in flight, so that a Store that is down stops the reading of relays. An event
// that never can be saved is given up in the end, until the next pass brings it.
func (g *ingest) failed(j *job, err error) {
	g.counters.failed.Add(1)
	g.cfg.Logger.Warn("event could not be saved", keyAttempt, j.tries+1, keyErr, err)
	g.observer.observe(StoreFailed{Err: err})
	g.retry(j)
}

// retry has a job tried again. As long as the Store saves nothing at all that says
// nothing about this event, and it is not given up soon.
func (g *ingest) retry(j *job) {
	if j.tries == 0 || g.retries.works != j.works {
		j.attempts++
	}
	j.tries++
	j.works = g.retries.works
	if j.attempts < maxAttempts && j.tries < maxTries {
		g.retries.add(j)
		return
	}
	g.known.forget(j.key.id)
	g.rejected.forget(j.key.id)
	g.counters.drop("unsaved", 1)
	g.end(j, true)
}

// end settles a job that may have waited before.
func (g *ingest) end(j *job, ok bool) {
	if !j.revived {
		g.settled(j, ok)
	}
}

// reject remembers an event that is not for us. accepted says that it would have
// been once; then it returns what waited for that.
func (g *ingest) reject(ctx context.Context, j *job, v Verdict, accepted bool) (woken []*waitingEvent) {
	g.unwanted(j, v.Reason)
	n := note{incoming: j.incoming, id: j.key.id, size: j.size, deps: keysOf(v.DependsOn)}
	if accepted {
		n.flags, n.deps = g.fateOf(j.incoming.Event), g.becomesRoot(j.incoming.Event)
	}
	n.fresh = len(n.deps) > 0
	g.note(n)
	if accepted {
		g.feed.superseded(j.incoming.Event)
		woken = g.arrived(ctx, g.fulfils(j.incoming.Event, false))
	}
	g.end(j, true)
	return woken
}

// postpone remembers nothing of an event, which may be fetched again another time. One
// that has waited before is still remembered for that.
func (g *ingest) postpone(j *job, reason string) {
	g.unwanted(j, reason)
	g.rejected.forget(j.key.id)
	g.end(j, true)
}

// unwanted counts an event that is not stored, to the cost of who sent it.
func (g *ingest) unwanted(j *job, reason string) {
	g.counters.reject(reason)
	g.observer.observe(EventRejected{ID: j.key.id, Source: j.incoming.Source, Reason: reason})
	if j.from != nil {
		j.from.spend(allowance.Foreign(j.size))
	}
}

// fateOf is what is to be remembered of an event that was accepted.
func (g *ingest) fateOf(ev *nostr.Event) fate {
	if ev.Kind == filters.KindDeletion || ev.Kind == filters.KindVanish {
		return 0 // they can't be referred to, or deleted
	}
	if ev.Kind == filters.KindAnnouncement || slices.ContainsFunc(nip34.RootRefs(ev), g.view.Announced) {
		return fateAccepted | fateRoot
	}
	return fateAccepted
}

// becomesRoot returns what would make an accepted event that is gone one to refer to.
func (g *ingest) becomesRoot(ev *nostr.Event) []depKey {
	if g.fateOf(ev)&fateRoot != 0 {
		return nil
	}
	var deps []Dependency
	for _, ref := range nip34.RootRefs(ev) {
		deps = append(deps, OnRepo(ref))
	}
	return keysOf(deps)
}

// note remembers an event and counts what had to go for that.
func (g *ingest) note(n note) {
	d := g.rejected.add(n)
	g.counters.drop("waiting", d.waiting)
	g.counters.drop("rejected", d.fresh)
	g.counters.drop("remembered", d.remembered)
	g.waiting.Store(int64(g.rejected.waiting()))
}

// remember keeps the id of an accepted event of which there may be other versions:
// should this one be deleted, they count again.
func (g *ingest) remember(ev *nostr.Event) {
	id, err := filters.ParseEventID(ev.ID)
	key, ok := addressKey(ev)
	if err == nil && ok {
		g.note(note{incoming: Incoming{Event: ev}, id: id, deps: []depKey{key}, flags: g.fateOf(ev)})
	}
}

// fulfils returns what events may have waited for that ev was accepted, and if it is
// stored now, that it is.
func (g *ingest) fulfils(ev *nostr.Event, stored bool) []depKey {
	keys := fulfils(ev, stored)
	if ev.Kind != filters.KindDeletion || !stored {
		return keys
	}
	if author, err := filters.ParsePubKey(ev.PubKey); err == nil {
		ids, _ := nip34.Deletes(ev)
		keys = append(keys, g.rejected.addressesOf(ids, author)...)
	}
	return keys
}

// fulfilsHeld returns what events may have waited for that ev is held.
func (g *ingest) fulfilsHeld(ev *nostr.Event) []depKey {
	keys := g.fulfils(ev, false)
	if author, err := filters.ParsePubKey(ev.PubKey); err == nil {
		keys = append(keys, OnHeldBy(author).key())
	}
	return keys
}

// arrived returns the whole events that waited for any of keys, and has those asked
// for again of which only the id is left.
func (g *ingest) arrived(ctx context.Context, keys []depKey) []*waitingEvent {
	whole, ask := g.rejected.arrived(keys)
	for relay, ids := range ask {
		has, err := g.has(ctx, ids)
		missing := ids[:0]
		for i, id := range ids {
			if err == nil && has[i] {
				g.rejected.here(id)
				continue
			}
			g.known.forget(id)
			missing = append(missing, id)
		}
		g.again(relay, missing)
	}
	return whole
}

// held takes note of an event that the Policy keeps, and returns what waited for it: a
// state may be held as well once its announcement is, a deletion of it be accepted.
func (g *ingest) held(ctx context.Context, j *job) (woken []*waitingEvent) {
	g.known.add(j.key.id)
	g.rejected.stored(j.key.id)
	g.counters.held.Add(1)
	if j.incoming.Event.Kind == filters.KindAnnouncement {
		if a, err := nip34.ParseAnnouncement(j.incoming.Event); err == nil {
			g.feed.hold(a)
		}
	}
	woken = g.arrived(ctx, g.fulfilsHeld(j.incoming.Event))
	g.end(j, true)
	return woken
}

func (g *ingest) depend(j *job, deps []Dependency) {
	g.note(note{incoming: j.incoming, id: j.key.id, size: j.size, deps: keysOf(deps), waits: true})
	g.end(j, true)
}

var errOutcomes = errors.New("the Store gave another number of outcomes than events")

// save saves jobs and returns what waited for them.
func (g *ingest) save(ctx context.Context, jobs []*job) (woken []*waitingEvent) {
	if len(jobs) == 0 {
		return nil
	}
	events := make([]Incoming, len(jobs))
	for i, j := range jobs {
		events[i] = j.incoming
	}
	outcomes, err := g.saveAll(ctx, events)
	if err != nil && g.oneByOne(jobs, err) {
		half := len(jobs) / 2
		woken = g.save(ctx, jobs[:half])
		return append(woken, g.save(ctx, jobs[half:])...)
	}
	if err != nil {
		g.cfg.Logger.Warn("store failed", keyErr, fmt.Errorf("saving %d events: %w", len(events), err))
		g.observer.observe(StoreFailed{Err: err})
		for _, j := range jobs {
			g.counters.failed.Add(1)
			g.retry(j)
		}
		return nil
	}
	if slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.Result != Failed }) {
		g.retries.works++
	}
	g.retries.worked()
	for i, j := range jobs {
		woken = append(woken, g.outcome(ctx, j, outcomes[i])...)
	}
	return woken
}

// oneByOne reports whether jobs that failed together are to be saved in smaller parts,
// down to single ones: if the Store works for others, or once in a while, it may be one
// of them that it can't stand.
func (g *ingest) oneByOne(jobs []*job, err error) bool {
	tries := jobs[0].tries
	return len(jobs) > 1 && tries > 0 && !errors.Is(err, context.DeadlineExceeded) &&
		(g.retries.works != jobs[0].works || tries%8 == 3)
}

func (g *ingest) saveAll(ctx context.Context, events []Incoming) (outcomes []Outcome, err error) {
	defer g.counters.recovered(&err, "store")
	ctx, cancel := context.WithTimeout(ctx, g.cfg.StoreTimeout)
	defer cancel()
	outcomes, err = g.store.Save(ctx, events)
	if err == nil && len(outcomes) != len(events) {
		err = errOutcomes
	}
	return outcomes, err
}

// outcome takes in what the Store did with an event.
func (g *ingest) outcome(ctx context.Context, j *job, o Outcome) (woken []*waitingEvent) {
	ev := j.incoming.Event
	g.counters.outcome(j.incoming.Source.Kind, o.Result)
	switch o.Result {
	case Stored, Duplicate:
		g.known.add(j.key.id)
		g.rejected.stored(j.key.id)
		g.remember(ev)
		g.feed.stored(ev)
		woken = g.arrived(ctx, g.fulfils(ev, true))
	case Superseded, Deleted:
		g.gone(j, o.Result)
		woken = g.arrived(ctx, g.fulfils(ev, false))
	case Refused:
		g.note(note{incoming: j.incoming, id: j.key.id})
	default:
		g.failed(j, fmt.Errorf("saving event %s: %w", j.key.id, o.Err))
		return nil
	}
	if o.Result == Stored {
		g.brought(j)
	}
	g.end(j, true)
	return woken
}

// gone remembers an event that was accepted but is no more.
func (g *ingest) gone(j *job, r Result) {
	ev := j.incoming.Event
	n := note{incoming: j.incoming, id: j.key.id, size: j.size, flags: g.fateOf(ev), deps: g.becomesRoot(ev)}
	if key, ok := addressKey(ev); ok && r == Superseded {
		n.deps = []depKey{key}
	}
	n.fresh = len(n.deps) > 0
	g.note(n)
	g.feed.superseded(ev)
}

// brought counts a new event for the relay that had it.
func (g *ingest) brought(j *job) {
	g.observer.observe(EventStored(j.incoming))
	if j.from == nil {
		return
	}
	j.from.stats.stored.Add(1)
	j.from.stats.earn(j.size)
	if j.incoming.Source.Kind == Live {
		g.cfg.Logger.Debug("live event", keyRelay, j.from.url.String(), keyEvent, j.key.id.String())
	}
	if j.gap {
		j.from.gap(j.incoming)
	}
}
