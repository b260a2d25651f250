package sync

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

const saveBatch = 256 // events given to the Store at once

// ingest is the way of an event from a relay into the Store, and what is told of events that go
// another one:
//
//	intake: known? -> id -> bytes in flight -> verification: stored? signature -> writer: policy -> Store
//
// # An announcement that the policy rejects whatever its signature goes from intake to writer
//
// Each step is bounded and waits for the next, so that a slow Store slows the
// reading of relays.
type ingest struct {
	workers int
	most    int64 // bytes in flight
	feed    *feed
	report  *report
	refetch *refetch
	store   *containedStore
	policy  *containedPolicy
	rules   Rules // nil: there are none

	holds    *holds
	absences *absences
	flights  *flights
	news     *news
	saving   *saving

	// The steps, in order.
	intake       *intake
	verification *verification
	retrier      *retrier
	listings     *listings
	writer       *writer

	toVerify chan *job
	toSave   chan *job
	ended    chan struct{} // closed when run ends
}

func newIngest(
	cfg Config, store Store, policy Policy, view View, f *feed, r *report, ask func(graspsync.RelayURL, []graspsync.EventID),
) *ingest {
	g := &ingest{
		workers: cfg.fixed.Workers, most: cfg.Limits.InFlight, feed: f, report: r, refetch: &refetch{ask}, rules: cfg.Rules,
		store: &containedStore{of: store, timeout: cfg.fixed.StoreTimeout, report: r},
		policy: &containedPolicy{
			of: policy, holder: cfg.Holder, rules: cfg.Rules, view: view, timeout: cfg.fixed.StoreTimeout, ahead: cfg.fixed.FutureTolerance, report: r,
		},
		holds:    &holds{},
		flights:  newFlights(cfg.Limits.InFlight),
		news:     &news{most: cfg.fixed.FeedQueue, wake: make(chan struct{}, 1)},
		saving:   &saving{},
		toVerify: make(chan *job, 2*verifyBatch),
		toSave:   make(chan *job, 2*saveBatch),
		ended:    make(chan struct{}),
	}
	g.absences = &absences{
		known: pending.NewKnown(cfg.fixed.Remembered), rejected: pending.NewRejectedIndex(rejectedConfig(cfg)),
		store: g.store, policy: g.policy, report: r, refetch: g.refetch, saving: g.saving,
	}
	g.intake = &intake{
		most: hostShare(cfg.Limits.InFlight), absences: g.absences, flights: g.flights, policy: g.policy, report: r,
		toVerify: g.toVerify, toSave: g.toSave, ended: g.ended,
	}
	g.verification = newVerification(verification{
		cfg: &cfg, store: g.store, absences: g.absences, flights: g.flights, refetch: g.refetch, report: r,
		toVerify: g.toVerify, toSave: g.toSave,
	})
	g.retrier = &retrier{
		cfg: &cfg, flights: g.flights, absences: g.absences,
		saving: g.saving, store: g.store, refetch: g.refetch, report: r,
	}
	g.listings = &listings{
		log: cfg.Logger, hearing: newHearing(), feed: f, policy: g.policy, store: g.store, absences: g.absences, news: g.news, report: r,
	}
	g.writer = &writer{
		cfg: &cfg, policy: g.policy, store: g.store, feed: f, holds: g.holds, flights: g.flights, absences: g.absences,
		news: g.news, saving: g.saving, retrier: g.retrier, listings: g.listings, report: r, toSave: g.toSave,
	}
	return g
}

// run works until ctx ends.
func (g *ingest) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range g.workers {
		wg.Go(func() { g.verification.run(ctx) })
	}
	wg.Go(func() { g.writer.run(ctx) })
	wg.Wait()
	close(g.ended)
	g.drain()
}

// drain settles what was on its way when the pipeline stopped.
func (g *ingest) drain() {
	for {
		select {
		case j := <-g.toVerify:
			g.flights.settled(j, false)
		case j := <-g.toSave:
			g.flights.settled(j, false)
		default:
			return
		}
	}
}

// more takes jobs along that are there, up to most of them.
func more(from <-chan *job, jobs []*job, most int) []*job {
	for len(jobs) < most {
		select {
		case j := <-from:
			jobs = append(jobs, j)
		default:
			return jobs
		}
	}
	return jobs
}

// met reports whether an event came, or is coming, by sync.
func (g *ingest) met(id graspsync.EventID) bool {
	return g.absences.dealtWith(id) || g.flights.has(id)
}

// fulfil takes note of an event that was stored without the writer, and has it judge
// again what waits for that.
func (g *ingest) fulfil(ev graspsync.Event) {
	g.news.announced(ev)
	g.news.wakeFor(pending.Fulfils(ev, true))
}

// discovered has judged again what waits for what a scan of the Store has found.
func (g *ingest) discovered(c indexChange) {
	g.news.foundAll(func() []pending.Key { return fulfilledBy(c) })
}

// fulfilledBy returns what events may have waited for that is here now.
func fulfilledBy(c indexChange) (keys []pending.Key) {
	for ref, a := range c.repos {
		if a == nil {
			continue
		}
		keys = append(keys, pending.KeyOf(graspsync.OnRepo(ref)), pending.KeyOf(graspsync.OnEvent(a.ID)),
			pending.KeyOf(graspsync.OnMaintainer(ref.Identifier, ref.Owner)), pending.KeyOf(graspsync.OnSay(ref.Identifier, ref.Owner)), pending.KeyOf(graspsync.OnWanted(ref.Identifier, ref.Owner)), pending.KeyOf(graspsync.OnAuthor(ref.Owner)))
		for _, m := range a.Maintainers {
			keys = append(keys, pending.KeyOf(graspsync.OnMaintainer(ref.Identifier, m)),
				pending.KeyOf(graspsync.OnSay(ref.Identifier, m)), pending.KeyOf(graspsync.OnWanted(ref.Identifier, m)))
		}
	}
	for id, refs := range c.roots {
		if len(refs) > 0 {
			keys = append(keys, pending.KeyOf(graspsync.OnEvent(id)))
		}
	}
	return keys
}

// recalled goes on with what an earlier process had remembered: with what waits for
// keys, which may have been stored when that process ended or after, and with what it
// wanted and did not get.
func (g *ingest) recalled(keys map[pending.Key]struct{}) {
	g.news.wakeFor(slices.Collect(maps.Keys(keys)))
	for relay, ids := range g.absences.rejected.Wanted() {
		g.refetch.again(relay, ids)
	}
}

// removed remembers an event that our relay has removed, or that the Policy holds no more: it must not come back for as
// long as what is not here is remembered, unless it was for a rule, and that is lifted, or somebody who runs the server
// wants it back. What has no such end would keep it out for good: what it waited for in vain may be there since.
func (g *ingest) removed(ev graspsync.Event) {
	g.absences.note(pending.Note{Incoming: graspsync.Incoming{Event: ev}, ID: ev.ID, Deps: append(g.untilLifted(ev), pending.KeyOf(graspsync.OnAsked(ev.ID))), Accepted: countsAgain(ev)})
	g.absences.known.Forget(ev.ID) // then, or a copy that comes at this moment would be stored
}

// untilLifted is what has an event asked for again that a rule blocks.
func (g *ingest) untilLifted(ev graspsync.Event) []pending.Key {
	if g.rules == nil {
		return nil
	}
	reason, until := g.rules.Blocks(ev)
	if reason == "" {
		return nil
	}
	return pending.KeysOf(until)
}

// displaced has an event judged again for which the Policy has no room any more. Data that
// it waits for may come in minutes, and the relay that had it is not asked for it again
// before the next pass. Any goroutine may say so.
func (g *ingest) displaced(ev graspsync.Event) {
	h, known := g.holds.get(ev.ID, true)
	if !known { // since before our start
		h.source.Kind = graspsync.CatchUp
	}
	if h.size == 0 {
		h.size = held(ev, len(ev.String()))
	}
	g.absences.note(pending.Note{
		Incoming: graspsync.Incoming{Event: ev, Source: h.source}, ID: ev.ID, Size: min(h.size, g.most), Payer: payer{stats: h.stats},
		Later: true, Tries: h.tries,
	})
	g.absences.known.Forget(ev.ID)
	g.news.judgeLater()
}

// heldFrom returns what is known of an event that the Policy holds: after a restart
// nothing but whether a client submitted it. ended says that it is held no more.
func (g *ingest) heldFrom(id graspsync.EventID, ended bool) heldEvent {
	h, known := g.holds.get(id, false)
	if ended {
		g.letGo(id)
	}
	if known {
		return h
	}
	if byUser, held := g.policy.heldForUser(id); held && !byUser {
		h.source.Kind = graspsync.CatchUp
	}
	return h
}

// letGo takes note that the Policy holds an event no more: there may be room for others.
func (g *ingest) letGo(id graspsync.EventID) {
	if _, held := g.holds.get(id, true); held && g.absences.rejected.Held().Later > 0 {
		g.news.freed()
	}
}

// count counts an event that was stored without the writer: one that a client submitted,
// or one that the Policy has released, as what it was when it came.
func (g *ingest) count(ev graspsync.Event) {
	if !g.holds.has(ev.ID) && g.met(ev.ID) {
		return // the writer did
	}
	h := g.heldFrom(ev.ID, true)
	g.report.say("event stored", graspsync.Incoming{Event: ev, Source: h.source})
	if h.source.Kind == graspsync.Direct {
		g.report.sources[graspsync.Direct].Add(1)
		return
	}
	g.report.outcome(h.source.Kind, graspsync.Stored)
	g.report.observe(EventStored{Event: ev, Source: h.source})
	if h.stats != nil {
		h.stats.brought()
	}
}
