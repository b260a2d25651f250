package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/absent"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// writeLoop is the end of the pipeline: one goroutine judges and saves, so that an
// event sees everything that was accepted before it.
func (g *ingest) writeLoop(ctx context.Context) {
	g.later.come() // what an earlier process has left
	for {
		select {
		case j := <-g.toSave:
			g.turn.Add(1)
			jobs := more(g.toSave, []*job{j}, saveBatch)
			g.process(ctx, jobs)
		case <-g.wake:
			g.turn.Add(1)
			g.unsettled.Add(1) // what waits is taken out of where it is remembered
			if g.later.more.Swap(false) {
				g.later.come()
			}
			keys, all := g.takeFulfilled()
			waiting := append(g.arrived(ctx, keys), g.heard(ctx)...)
			if all {
				waiting = append(waiting, g.absent.Anything()...)
			}
			g.process(ctx, g.revived(waiting))
			g.unsettled.Add(-1)
		case <-g.retries.due():
			g.turn.Add(1)
			g.tryAgain(ctx)
		case <-g.later.due():
			g.turn.Add(1)
			g.judgeLater(ctx)
		case <-ctx.Done():
			jobs := g.retries.all()
			g.failing(jobs, false)
			g.giveUp(jobs)
			return
		}
		g.turn.Add(1)
	}
}

// tryAgain tries what could not be judged or saved, and asks for what is known by its
// id only.
func (g *ingest) tryAgain(ctx context.Context) {
	r := &g.retries
	jobs := r.take(time.Now())
	g.failing(append(r.over(time.Now()), jobs...), false)
	works, failures := r.works, g.trouble.failures
	g.process(ctx, jobs)
	now := time.Now()
	if g.trouble.failures != failures && r.works == works {
		r.failed(now)
		g.stuck(now)
	}
	g.relieve()
	due, gone := r.ask(now)
	g.report.drop("unsaved", gone)
	for relay, ids := range due {
		g.askAgain(ctx, relay, ids)
	}
	g.owed.Store(int64(len(r.owed)))
	r.arm(now)
}

// relieve lets go of the bytes of events that have failed if they take most of those in
// flight: it may be they that can't be saved, and nothing else gets in to show it. If it
// is the Store, they are fetched again later. Where no more ids can be remembered they
// keep their bytes, and relays are read from slowly: a few of the relay that holds most
// go each time, for others to be tried.
func (g *ingest) relieve() {
	r := &g.retries
	if r.held <= g.cfg.Limits.InFlight/2 {
		return
	}
	kept := r.jobs[:0]
	heaviest := r.heaviest()
	var owed, lost []*job
	for _, j := range r.jobs {
		switch {
		case r.held <= g.cfg.Limits.InFlight/2 || j.apart || j.revived:
			kept = append(kept, j)
			continue
		case g.owe(j):
			owed = append(owed, j)
		case len(lost) < probes && j.incoming.Source.Relay == heaviest:
			lost = append(lost, j)
		default:
			kept = append(kept, j)
			continue
		}
		r.held -= j.size
	}
	clear(r.jobs[len(kept):])
	r.jobs = kept
	g.failing(append(owed, lost...), false)
	for _, j := range owed {
		g.end(j, true)
	}
	for _, j := range lost {
		g.drop(j)
	}
}

// drop ends a job whose event is not saved and of which not even the id is kept. A batch
// that brought it is repeated; a live event is asked for by its id.
func (g *ingest) drop(j *job) {
	g.known.Forget(j.key.id)
	g.absent.Forget(j.key.id)
	g.report.drop("unsaved", 1)
	relay := j.incoming.Source.Relay
	g.miss(relay, j.since)
	g.end(j, false)
	if j.incoming.Source.Kind == graspsync.Live {
		g.again(relay, []graspsync.EventID{j.key.id})
	}
}

// miss keeps what a relay has from counting as complete: an event of its was let go of
// that had come before since. It is asked again since then when events can be saved.
func (g *ingest) miss(relay graspsync.RelayURL, since time.Time) {
	g.failing([]*job{g.retries.miss(relay, time.Now())}, true)
	g.mu.Lock()
	defer g.mu.Unlock()
	if at, known := g.missed[relay]; !known || since.Before(at) {
		lazy.Put(&g.missed, relay, since)
	}
}

// works takes note that events can be saved again.
func (g *ingest) works() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.saving, g.nothing = true, false
}

// stuck takes note that of all that was tried nothing could be saved.
func (g *ingest) stuck(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stuckAt, g.nothing = now, true
}

// savesNothing reports whether of all that is tried nothing can be saved.
func (g *ingest) savesNothing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.nothing
}

// stuckSince reports whether nothing could be saved at some time since then.
func (g *ingest) stuckSince(t time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.stuckAt.Before(t)
}

// takeMissed reports whether events can be saved again that could not be, or can anyhow
// if late is set, and returns since when some were let go of, by relay.
func (g *ingest) takeMissed(late bool) (missed map[graspsync.RelayURL]time.Time, again bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.nothing || !g.saving && !late {
		return nil, false
	}
	missed, g.missed, g.saving = g.missed, nil, false
	return missed, true
}

// owe remembers of an event just that it is still to be saved: first where that is
// durable. It is false if there is no room.
func (g *ingest) owe(j *job) bool {
	lost, ok := g.retries.owe(j, time.Now())
	if !ok {
		return false
	}
	if lost != nil {
		g.report.drop("unsaved", 1)
		g.miss(lost.relay, lost.since)
		g.again(lost.relay, []graspsync.EventID{lost.turn.Item})
	}
	j.refund(1) // it was our Store that could not
	g.owed.Store(int64(len(g.retries.owed)))
	g.known.Forget(j.key.id)
	g.absent.Owe(absent.Note{Incoming: j.incoming, ID: j.key.id})
	return true
}

// paid takes note that an event needs no more tries.
func (g *ingest) paid(id graspsync.EventID) {
	if g.retries.paid(id) {
		g.owed.Store(int64(len(g.retries.owed)))
	}
}

// askAgain asks for events whose bytes were let go of, unless they are here.
func (g *ingest) askAgain(ctx context.Context, relay graspsync.RelayURL, ids []graspsync.EventID) {
	has, err := g.has(ctx, ids)
	missing := ids[:0]
	for i, id := range ids {
		if err == nil && has[i] {
			g.absent.Stored(id)
			g.paid(id)
			continue
		}
		missing = append(missing, id)
	}
	g.again(relay, missing)
}

// giveUp settles jobs that will not be tried again.
func (g *ingest) giveUp(jobs []*job) {
	for _, j := range jobs {
		g.end(j, false)
	}
}

// revived makes jobs of events that have waited. Nobody counts on them any more.
func (g *ingest) revived(waiting []*absent.Whole) []*job {
	jobs := make([]*job, len(waiting))
	for i, w := range waiting {
		stats, _ := w.Payer.(*relayStats)
		jobs[i] = &job{
			key: copyKey{id: w.ID}, incoming: w.Incoming, size: w.Size, stats: stats, cost: w.Cost, revived: true,
		}
	}
	g.waiting.Store(int64(g.absent.Held().Waiting))
	return jobs
}

// process judges jobs, saves what is accepted, and goes on with what waited for
// that. Where that is much, what comes now has half of the turns.
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
		woken = append(woken, g.heard(ctx)...)
		if jobs = append(jobs[n:], g.revived(woken)...); len(jobs) > saveBatch && len(jobs) <= g.cfg.fixed.Waiting {
			jobs = append(more(g.toSave, nil, saveBatch/2), jobs...)
		}
	}
}

// judge settles what is not accepted and returns the rest, and what waited for
// something that has come too late to be stored.
func (g *ingest) judge(ctx context.Context, jobs []*job) (accepted []*job, woken []*absent.Whole) {
	accepted = make([]*job, 0, len(jobs))
	for _, j := range jobs {
		if g.overtaken(j) {
			continue
		}
		verdict, err := g.verdict(ctx, j.incoming)
		if err != nil {
			g.failed(j, fmt.Errorf("judging event %s: %w", j.key.id, err))
			continue
		}
		switch {
		case verdict.Decision == graspsync.Accept && g.expired(j.incoming.Event):
			g.reject(j, reject(reasonExpired))
		case verdict.Decision == graspsync.Accept:
			accepted = append(accepted, j)
		case verdict.Decision == graspsync.Hold:
			woken = append(woken, g.held(ctx, j)...)
		case verdict.Decision == graspsync.Depend && len(verdict.DependsOn) > 0:
			g.depend(j, verdict.DependsOn)
		case verdict.Decision == graspsync.Reject:
			g.reject(j, verdict)
		case verdict.Decision == graspsync.Later:
			g.postpone(j, verdict.Reason)
		default:
			g.failed(j, fmt.Errorf("judging event %s: %w", j.key.id, errVerdict))
		}
	}
	return accepted, woken
}

// overtaken settles a job of whose event another copy was dealt with since it came, or since
// it could not be judged or saved. What has waited may be known, and is judged for that.
func (g *ingest) overtaken(j *job) bool {
	if j.revived && j.tries == 0 || !g.known.Has(j.key.id) {
		return false
	}
	g.report.duplicates.Add(1)
	j.refund(1)
	if j.tries > 0 {
		g.savedAgain()
	}
	g.done(j)
	return true
}

// expired reports whether an event's time is over (NIP-40).
func (g *ingest) expired(ev *nostr.Event) bool {
	at, ok := nip34.Expiration(ev)
	return ok && at <= nostr.Now()
}

// ahead reports whether an event is dated too far in the future.
func (g *ingest) ahead(ev *nostr.Event) bool {
	// In seconds: the latest of them do not fit into a time.
	return ev.CreatedAt > nostr.Timestamp(time.Now().Add(g.cfg.fixed.FutureTolerance).Unix())
}

var errVerdict = errors.New("the Policy gave no valid verdict")

const (
	reasonFuture  = "invalid: dated too far ahead"
	reasonExpired = "invalid: expired"
)

// verdict is the policy's, after what takes a clock.
func (g *ingest) verdict(ctx context.Context, in graspsync.Incoming) (v graspsync.Verdict, err error) {
	if g.ahead(in.Event) {
		return graspsync.Verdict{Decision: graspsync.Later, Reason: reasonFuture}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Times.StoreTimeout)
	defer cancel()
	defer g.report.recovered(&err, "policy")
	return g.policy.Judge(ctx, in.Event, in.Source, g.view)
}

// failed has a job tried again whose event could not be judged or saved: that is no
// verdict on the event.
func (g *ingest) failed(j *job, err error) {
	g.report.failed.Add(1)
	g.troubled(err)
	g.known.Forget(j.key.id) // whatever became of it before
	if j.again {
		// There was room for it.
		j.again = false
		g.absent.Judging(j.key.id)
	}
	g.retry(j)
}

// retry has a job tried again, until that works. Its event stays in the pipeline, at
// first with a share of the bytes that is its own, and keeps its part of those in
// flight when that is used up, so that a Store that is down stops the reading of
// relays. Of one that fails while others are saved only the id is kept.
func (g *ingest) retry(j *job) {
	r := &g.retries
	if r.came(j.key.id) { // it was asked for once more
		j.refund(1)
		g.end(j, true)
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
		if g.owe(j) {
			g.end(j, true)
		} else {
			g.drop(j)
		}
		return
	}
	if !j.apart && r.apart+j.size <= r.room {
		j.apart = true
		r.apart += j.size
		if !j.revived {
			g.release(j)
		}
	}
	if j.revived && !j.apart && g.owe(j) { // it has no other share than that
		return
	}
	g.failing([]*job{j}, true)
	r.add(j, time.Now())
}

// failing takes note of jobs that wait to be tried again, or no more. Only what the
// relays had that brought them is incomplete by that.
func (g *ingest) failing(jobs []*job, waiting bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range jobs {
		switch {
		case j.revived: // does not count
		case waiting:
			g.waits[j] = struct{}{}
		default:
			delete(g.waits, j)
		}
	}
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
func (g *ingest) troubled(err error) {
	t := &g.trouble
	t.failures++
	t.unsaid++
	t.down = true
	now := time.Now()
	if !t.saidAt.IsZero() && now.Sub(t.saidAt) < sayTrouble {
		return
	}
	g.cfg.Logger.Warn("events could not be saved, and are tried again", "failures", t.unsaid,
		"unsaved", len(g.retries.jobs)+len(g.retries.owed)+1, keyErr, err)
	g.report.observe(StoreFailed{Err: err})
	t.saidAt, t.unsaid, t.said = now, 0, true
}

// savedAgain takes note that what could not be saved before was saved now.
func (g *ingest) savedAgain() {
	t := &g.trouble
	if !t.down {
		return
	}
	t.down = false
	g.works()
	g.retries.hurry(time.Now())
	if t.said {
		t.said = false
		g.cfg.Logger.Info("events can be saved again", "unsaved", len(g.retries.jobs)+len(g.retries.owed))
	}
}

// done settles a job of which a verdict or the Store has disposed.
func (g *ingest) done(j *job) {
	g.paid(j.key.id)
	g.end(j, true)
}

// end settles a job that may have waited, or failed, before.
func (g *ingest) end(j *job, ok bool) {
	if j.apart {
		g.retries.apart -= j.size
	}
	switch {
	case j.revived:
	case j.apart:
		g.leave(j, ok)
	default:
		g.settled(j, ok)
	}
}

// reject remembers an event that is not for us.
func (g *ingest) reject(j *job, v graspsync.Verdict) {
	g.unwanted(j, v.Reason)
	g.hearing.waits(v.DependsOn)
	n := absent.Note{Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: j.stats, Cost: j.lent(), Deps: absent.KeysOf(v.DependsOn)}
	n.Fresh = len(n.Deps) > 0
	g.note(n)
	g.done(j)
}

// postpone keeps an event to be judged again for which there is no room now.
func (g *ingest) postpone(j *job, reason string) {
	if j.again { // it is kept, and was counted when it came
		j.became(false)
		g.done(j)
		return
	}
	g.unwanted(j, reason)
	g.note(absent.Note{Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: j.stats, Cost: j.lent(), Later: true})
	g.later.come()
	g.done(j)
}

// displaced has an event judged again for which the Policy has no room any more. Data that
// it waits for may come in minutes, and the relay that had it is not asked for it again
// before the next pass. Any goroutine may say so.
func (g *ingest) displaced(ev *nostr.Event, id graspsync.EventID) {
	h, known := g.holds.get(id, true)
	if !known { // since before our start
		h.source.Kind = graspsync.CatchUp
	}
	if h.size == 0 {
		h.size = int64(len(ev.String())) + 512
	}
	g.note(absent.Note{
		Incoming: graspsync.Incoming{Event: ev, Source: h.source}, ID: id, Size: min(h.size, g.cfg.Limits.InFlight), Payer: h.stats,
		Later: true, Tries: h.tries,
	})
	g.known.Forget(id)
	g.later.more.Store(true)
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// unwanted counts an event that is not stored.
func (g *ingest) unwanted(j *job, reason string) {
	j.became(false)
	g.report.reject(reason)
	g.say("event rejected", j.incoming, keyReason, graspsync.Printable(reason))
	g.report.observe(EventRejected{ID: j.key.id, Source: j.incoming.Source, Reason: reason})
}

// say logs why an event is not stored, or not now, for whoever looks for one.
func (g *ingest) say(msg string, in graspsync.Incoming, why string, what any) {
	g.cfg.Logger.Debug(msg, keyEvent, in.Event.ID, "kind", in.Event.Kind, "source", in.Source.Kind.String(),
		keyRelay, in.Source.Relay.String(), why, what)
}

// countsAgain reports whether it is to be remembered of an event that it was accepted: what
// happens to others may have it judged again.
func countsAgain(ev *nostr.Event) bool {
	return ev.Kind != graspsync.KindDeletion && ev.Kind != graspsync.KindVanish
}

// note remembers an event and counts what had to go for that.
func (g *ingest) note(n absent.Note) {
	d := g.absent.Add(n)
	g.report.drop("waiting", d.Waiting)
	g.report.drop("rejected", d.Fresh)
	g.report.drop("postponed", d.Later)
	g.report.drop("remembered", d.Remembered)
	g.waiting.Store(int64(g.absent.Held().Waiting))
}

// remember keeps the id of an accepted event of which there may be other versions:
// should this one be deleted, they count again.
func (g *ingest) remember(ev *nostr.Event) {
	id, err := graspsync.ParseEventID(ev.ID)
	key, ok := absent.AddressKey(ev)
	if err == nil && ok {
		g.note(absent.Note{Incoming: graspsync.Incoming{Event: ev}, ID: id, Deps: []absent.Key{key}, Accepted: countsAgain(ev)})
	}
}

// fulfils returns what events may have waited for that ev was accepted, and if it is
// stored now, that it is.
func (g *ingest) fulfils(ev *nostr.Event, stored bool) []absent.Key {
	keys := absent.Fulfils(ev, stored)
	if ev.Kind != graspsync.KindDeletion || !stored {
		return keys
	}
	if author, err := graspsync.ParsePubKey(ev.PubKey); err == nil {
		ids, _ := nip34.Deletes(ev)
		keys = append(keys, g.absent.AddressesOf(ids, author)...)
	}
	return keys
}

// fulfilsHeld returns what events may have waited for that ev is held. A policy that can't tell
// whose word counts has those tried whom it may be about: no view but the policy's has it.
func (g *ingest) fulfilsHeld(ev *nostr.Event) []absent.Key {
	keys := g.fulfils(ev, false)
	if author, err := graspsync.ParsePubKey(ev.PubKey); err == nil {
		keys = append(keys, absent.KeyOf(graspsync.OnHeldBy(author)))
	}
	if a, err := nip34.ParseAnnouncement(ev); err == nil && !g.canTell(a.Ref.Identifier) {
		for _, who := range append([]graspsync.PubKey{a.Ref.Owner}, a.Maintainers...) {
			keys = append(keys, absent.KeyOf(graspsync.OnSay(a.Ref.Identifier, who)), absent.KeyOf(graspsync.OnWanted(a.Ref.Identifier, who)))
		}
	}
	return keys
}

// canTell reports whether the policy says whose word counts under an identifier.
func (g *ingest) canTell(identifier string) bool {
	_, can := g.hear(identifier)
	return can
}

// arrived returns the whole events that waited for any of keys, and has those asked
// for again of which only the id is left.
func (g *ingest) arrived(ctx context.Context, keys []absent.Key) []*absent.Whole {
	whole, ask := g.absent.Arrived(keys)
	for relay, ids := range ask {
		has, err := g.has(ctx, ids)
		missing := ids[:0]
		for i, id := range ids {
			if err == nil && has[i] {
				g.absent.Here(id)
				continue
			}
			g.known.Forget(id)
			missing = append(missing, id)
		}
		g.again(relay, missing)
	}
	return whole
}

// held takes note of an event that the Policy keeps, and returns what waited for it: a
// state may be held as well once its announcement is, a deletion of it be accepted.
func (g *ingest) held(ctx context.Context, j *job) (woken []*absent.Whole) {
	g.say("event held", j.incoming, "by", "the policy")
	j.refund(2)
	j.became(true)
	g.known.Add(j.key.id)
	e, _ := g.absent.Look(j.key.id)
	g.absent.Stored(j.key.id)
	g.report.held.Add(1)
	g.holds.add(j.key.id, heldEvent{source: j.incoming.Source, size: j.size, stats: j.stats, tries: e.Tries})
	if j.incoming.Event.Kind == graspsync.KindAnnouncement {
		if a, err := nip34.ParseAnnouncement(j.incoming.Event); err == nil && g.policy.Lists(a) {
			g.feed.hold(a)
		}
	}
	g.announced(j.incoming.Event)
	woken = g.arrived(ctx, g.fulfilsHeld(j.incoming.Event))
	g.done(j)
	return woken
}

func (g *ingest) depend(j *job, deps []graspsync.Dependency) {
	j.became(false)
	g.hearing.waits(deps)
	g.say("event waits", j.incoming, "for", deps[0])
	g.note(absent.Note{
		Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: j.stats, Cost: j.lent(), Deps: absent.KeysOf(deps), Waits: true,
	})
	g.done(j)
}

var errOutcomes = errors.New("the Store gave another number of outcomes than events")

// save saves jobs and returns what waited for them.
func (g *ingest) save(ctx context.Context, jobs []*job) (woken []*absent.Whole) {
	p := patience{call: g.cfg.Times.StoreTimeout}
	if len(jobs) == 1 && jobs[0].slow && jobs[0].tries%slowTries != 0 {
		p.call = g.cfg.Times.StoreTimeout / leastPatience
	}
	return g.saveFor(ctx, jobs, p)
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

func (g *ingest) saveFor(ctx context.Context, jobs []*job, p patience) (woken []*absent.Whole) {
	if len(jobs) == 0 {
		return nil
	}
	events, places := incoming(jobs)
	outcomes, err := g.saveAll(ctx, events, p.call)
	if err != nil {
		return g.saveFailed(ctx, jobs, p, fmt.Errorf("saving %d events: %w", len(events), err))
	}
	if slices.ContainsFunc(outcomes, func(o graspsync.Outcome) bool { return o.Result != graspsync.Failed }) {
		if g.retries.worked(time.Now()) {
			g.works()
		}
	}
	for i, j := range jobs {
		o := &outcomes[places[i]]
		woken = append(woken, g.outcome(ctx, j, *o)...)
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
func (g *ingest) saveFailed(ctx context.Context, jobs []*job, p patience, err error) (woken []*absent.Whole) {
	r, last := &g.retries, len(jobs)-1
	slow := errors.Is(err, context.DeadlineExceeded)
	if slow {
		p = p.apart(g.cfg.Times.StoreTimeout, time.Now())
	}
	if last > 0 && jobs[0].tries > 0 && !p.over(time.Now()) {
		works := jobs[0].works
		woken = g.saveFor(ctx, jobs[last:], p)
		if jobs = jobs[:last]; r.works != works {
			half := len(jobs) / 2
			woken = append(woken, g.saveFor(ctx, jobs[:half], p)...)
			return append(woken, g.saveFor(ctx, jobs[half:], p)...)
		}
	}
	for _, j := range jobs {
		j.slow = slow && last == 0
		g.failed(j, err)
	}
	return woken
}

func (g *ingest) saveAll(ctx context.Context, events []graspsync.Incoming, most time.Duration) (outcomes []graspsync.Outcome, err error) {
	defer g.report.recovered(&err, "store")
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	outcomes, err = g.store.Save(ctx, events)
	if err == nil && len(outcomes) != len(events) {
		err = errOutcomes
	}
	return outcomes, err
}

// outcome takes in what the Store did with an event.
func (g *ingest) outcome(ctx context.Context, j *job, o graspsync.Outcome) (woken []*absent.Whole) {
	ev := j.incoming.Event
	g.report.outcome(j.incoming.Source.Kind, o.Result)
	switch o.Result {
	case graspsync.Stored, graspsync.Duplicate:
		g.known.Add(j.key.id)
		g.absent.Stored(j.key.id)
		g.remember(ev)
		g.feed.stored(ev)
		g.announced(ev)
		woken = g.arrived(ctx, g.fulfils(ev, true))
	case graspsync.Superseded, graspsync.Deleted:
		j.became(false)
		g.say("event not stored", j.incoming, "result", o.Result.String())
		g.gone(j, o.Result)
	case graspsync.Refused:
		j.became(false)
		g.say("event not stored", j.incoming, "result", o.Result.String())
		g.note(absent.Note{Incoming: j.incoming, ID: j.key.id})
	default:
		g.failed(j, fmt.Errorf("saving event %s: %w", j.key.id, o.Err))
		return nil
	}
	switch o.Result { //nolint:exhaustive // the others were of no use
	case graspsync.Stored:
		g.brought(j)
		j.became(true)
		j.refund(2) // which pays for another one that is not
	case graspsync.Duplicate:
		j.refund(1)
	}
	if j.tries > 0 || g.retries.isOwed(j.key.id) {
		g.savedAgain()
	}
	g.done(j)
	return woken
}

// heldFrom returns what is known of an event that the Policy holds: after a restart
// nothing but whether a client submitted it. take forgets it.
func (g *ingest) heldFrom(id graspsync.EventID, take bool) heldEvent {
	h, known := g.holds.get(id, take)
	if known {
		return h
	}
	if holder, ok := g.policy.(UserHolder); ok {
		if byUser, held := holder.HeldForUser(id); held && !byUser {
			h.source.Kind = graspsync.CatchUp
		}
	}
	return h
}

// count counts an event that was stored without the writer: one that a client submitted,
// or one that the Policy has released, as what it was when it came.
func (g *ingest) count(id graspsync.EventID, ev *nostr.Event) {
	if !g.holds.has(id) && g.met(id) {
		return // the writer did
	}
	h := g.heldFrom(id, true)
	if h.source.Kind == graspsync.Direct {
		g.report.sources[graspsync.Direct].Add(1)
		return
	}
	g.report.outcome(h.source.Kind, graspsync.Stored)
	g.report.observe(EventStored{Event: ev, Source: h.source})
	if h.stats != nil {
		h.stats.brought(h.size)
	}
}

// gone remembers an event that was accepted but is no more.
func (g *ingest) gone(j *job, r graspsync.Result) {
	ev := j.incoming.Event
	n := absent.Note{Incoming: j.incoming, ID: j.key.id, Size: j.size, Payer: j.stats, Accepted: countsAgain(ev)}
	if key, ok := absent.AddressKey(ev); ok && r == graspsync.Superseded {
		n.Deps = []absent.Key{key}
	}
	n.Fresh = len(n.Deps) > 0
	g.note(n)
}

// brought counts a new event for the relay that had it.
func (g *ingest) brought(j *job) {
	g.report.observe(EventStored(j.incoming))
	if j.stats != nil {
		j.stats.brought(j.size)
	}
	if j.from == nil {
		return
	}
	if j.incoming.Source.Kind == graspsync.Live {
		g.cfg.Logger.Debug("live event", keyRelay, j.from.url.String(), keyEvent, j.key.id.String())
	}
	if j.gap {
		j.from.gap(j.incoming)
	}
}

// judgeLater judges again some of what there was no room for, and has some of that asked
// for of which only the id is left.
func (g *ingest) judgeLater(ctx context.Context) {
	l, now := &g.later, time.Now()
	if g.retries.wait == 0 { // else nothing can be saved
		g.laterTurn(ctx, now)
	}
	if l.asks(now) {
		ask, any := g.absent.Overdue(laterAskMost)
		for relay, ids := range ask {
			g.askAgain(ctx, relay, ids)
		}
		l.any = any
	}
	wait := laterEvery
	if l.hurrying {
		wait = laterHurry
	}
	l.arm(max(wait, laterShare*time.Since(now)))
}

// laterTurn judges again those whose turn it is.
func (g *ingest) laterTurn(ctx context.Context, now time.Time) {
	l, last := &g.later, now.Add(-laterAgain)
	if l.hurrying {
		last = l.hurriedAt.Add(-1)
	}
	jobs := g.revived(g.absent.InTurn(laterTurn, last, now))
	for _, j := range jobs {
		j.again = true
	}
	g.process(ctx, jobs)
	l.hurrying = l.hurrying && len(jobs) > 0
	if slices.ContainsFunc(jobs, func(j *job) bool { return j.useful }) {
		l.found(now)
	}
}

// withdrawn has the writer see whether there are others under an identifier whose word counts
// since an announcement is gone: there was no room for them beside those whom it listed.
func (g *ingest) withdrawn(ev *nostr.Event) {
	if ev.Kind == graspsync.KindAnnouncement {
		g.announced(ev)
		g.wakeFor(nil)
	}
}

// announced takes note that there may be others under an identifier whose word counts.
func (g *ingest) announced(ev *nostr.Event) {
	if ev.Kind != graspsync.KindAnnouncement {
		return
	}
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.changed) < g.cfg.fixed.FeedQueue {
			lazy.Put(&g.changed, strings.Clone(a.Ref.Identifier), struct{}{})
		} else {
			g.overrun, g.unsure = true, true
		}
	}
}

// heard returns what is to be judged again since announcements have come or gone, and has those
// removed that were stored for nothing but that they were listed. The policy is asked once for
// each identifier, however many have.
func (g *ingest) heard(ctx context.Context) (woken []*absent.Whole) {
	stored, all := g.feed.index.takeNews()
	g.mu.Lock()
	changed, unsure := g.changed, all || g.unsure
	g.changed, g.unsure = nil, false
	g.mu.Unlock()
	if all {
		woken = append(woken, g.absent.Anything()...)
	}
	if unsure {
		for _, identifier := range g.feed.index.related() {
			lazy.Put(&changed, identifier, struct{}{})
		}
	}
	for identifier := range stored {
		lazy.Put(&changed, identifier, struct{}{})
	}
	for _, identifier := range slices.Sorted(maps.Keys(changed)) {
		relatives := g.relatives(identifier)
		idle := g.absent.Idle() // who is heard meanwhile has nothing that waits
		if idle {
			g.hearing.forget(identifier)
		}
		if idle && len(relatives) == 0 {
			continue
		}
		heard, can := g.hear(identifier)
		if can {
			g.retire(ctx, g.unlisted(identifier, relatives, heard))
		}
		if idle {
			continue
		}
		keys := slices.DeleteFunc(g.newlyHeard(identifier, heard, can), func(k absent.Key) bool { return !g.absent.Awaits(k) })
		woken = append(woken, g.arrived(ctx, keys)...)
	}
	return woken
}

// relatives returns what may be removed under an identifier if nobody lists it any more.
func (g *ingest) relatives(identifier string) []*nip34.Announcement {
	if _, can := g.store.(Remover); !can {
		return nil
	}
	return g.feed.index.relatives(identifier)
}

// spared is how many announcements with an identifier stay that nobody lists any more, the newest:
// who is listed again, after a mistake of an old client say, is known at once.
const spared = 32

// unlisted returns which of those have to go who are not listed.
func (g *ingest) unlisted(identifier string, relatives []*nip34.Announcement, heard map[graspsync.PubKey]bool) []*nip34.Announcement {
	out := slices.DeleteFunc(relatives, func(a *nip34.Announcement) bool {
		_, is := heard[a.Ref.Owner]
		return is
	})
	if len(g.view.Announcements(identifier)) == 0 { // nobody is left whose repository it is about
		return out
	}
	slices.SortFunc(out, func(a, b *nip34.Announcement) int {
		if a.Stamp().Newer(b.Stamp()) {
			return -1
		}
		return 1
	})
	return out[min(spared, len(out)):]
}

// retiredAtOnce are removed that are read together: each may be half a megabyte long.
const retiredAtOnce = 16

// retire removes announcements that nobody lists any more, or that have given way to others
// who are listed. They may come again, and are asked for once they are listed. What can't
// be removed is tried with the next change there.
func (g *ingest) retire(ctx context.Context, all []*nip34.Announcement) {
	for some := range slices.Chunk(all, retiredAtOnce) {
		ids := make([]graspsync.EventID, len(some))
		for i, a := range some {
			ids[i] = a.ID
		}
		events, err := g.view.Events(ctx, ids)
		for i := 0; i < len(some) && err == nil; i++ {
			err = g.remove(ctx, some[i], events[some[i].ID])
		}
		if err != nil {
			g.cfg.Logger.Warn("announcements that nobody lists any more could not be removed", "left", len(some), keyErr, err)
			return
		}
	}
}

// remove removes an announcement; ev is nil if it is not stored any more.
func (g *ingest) remove(ctx context.Context, a *nip34.Announcement, ev *nostr.Event) error {
	if ev == nil {
		ev = &nostr.Event{ID: a.ID.String(), Kind: graspsync.KindAnnouncement}
		g.feed.removed(ev)
		return nil
	}
	if err := g.removeStored(ctx, ev); err != nil {
		return err
	}
	deps := absent.KeysOf([]graspsync.Dependency{graspsync.OnWanted(a.Ref.Identifier, a.Ref.Owner), graspsync.OnRepo(a.Ref)})
	g.note(absent.Note{
		Incoming: graspsync.Incoming{Event: ev, Source: graspsync.Source{Kind: graspsync.CatchUp}}, ID: a.ID, Deps: deps,
	})
	g.known.Forget(a.ID)
	g.report.drop("unlisted", 1)
	g.cfg.Logger.Debug("an announcement that nobody lists any more was removed", keyEvent, a.ID.String())
	g.feed.removed(ev)
	g.withdrawn(ev)
	return nil
}

func (g *ingest) removeStored(ctx context.Context, ev *nostr.Event) (err error) {
	defer g.report.recovered(&err, "store")
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Times.StoreTimeout)
	defer cancel()
	store, can := g.store.(Remover)
	if !can {
		return nil
	}
	return store.Remove(ctx, ev)
}

// hear asks the policy whose word counts under an identifier; false: it can't tell.
func (g *ingest) hear(identifier string) (map[graspsync.PubKey]bool, bool) {
	policy, can := g.policy.(Hearer)
	if !can {
		return nil, false
	}
	heard, err := g.askHearer(policy, identifier)
	return heard, err == nil
}

// newlyHeard returns what is fulfilled by whose word counts now that did not. A policy that
// can't tell has everybody tried.
func (g *ingest) newlyHeard(identifier string, heard map[graspsync.PubKey]bool, can bool) (keys []absent.Key) {
	if can {
		return g.hearing.gained(identifier, heard)
	}
	known := make(map[graspsync.PubKey]struct{})
	for _, a := range g.view.Family(identifier) {
		known[a.Ref.Owner] = struct{}{}
		for _, m := range a.Maintainers {
			known[m] = struct{}{}
		}
	}
	for who := range known {
		keys = append(keys, absent.KeyOf(graspsync.OnSay(identifier, who)), absent.KeyOf(graspsync.OnWanted(identifier, who)))
	}
	return keys
}

func (g *ingest) askHearer(policy Hearer, identifier string) (heard map[graspsync.PubKey]bool, err error) {
	defer g.report.recovered(&err, "policy")
	heard = policy.Heard(identifier, g.view)
	if heard == nil {
		return nil, fmt.Errorf("%w: who is heard", errVerdict)
	}
	return heard, nil
}
