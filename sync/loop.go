package sync

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/absent"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
)

const (
	statusLeast = 100 * time.Millisecond // between two snapshots
	statusEvery = time.Second
	statusMost  = time.Minute // the health of relays changes by itself
	statusShare = 20          // a snapshot takes at most one part in so many of the time

	// Before the Store is read again that could not be, doubling: at the start, when
	// nothing can be done without, and later.
	rescanFirst     = 10 * time.Second
	rescanMostFirst = time.Minute
	rescanMost      = time.Hour
)

// completeEvery is how long to wait between two plans of everything that a bound made
// necessary.
const completeEvery = time.Minute

// loop is the one goroutine that owns the plan. It waits for what happens, lets the
// plan decide, and has connections do what it decided; it does no I/O itself.
type loop struct {
	m     *SyncManager
	plan  *plan.Plan
	conns map[graspsync.RelayURL]*conn
	stats map[graspsync.RelayURL]*relayStats

	labels  int                                       // relays with metrics of their own
	gone    RelayStatus                               // counts of forgotten relays without
	goneAny bool                                      // there were any
	held    map[graspsync.RepoRef]*nip34.Announcement // held back by the policy
	rng     *rand.Rand
	keeper  keeper // what is confirmed; nil: nothing is kept of it

	scanning bool
	started  bool             // the first scan has succeeded
	window   <-chan time.Time // open batch window, nil if none

	incomplete  bool      // there may be room again for what was dropped at a bound
	completedAt time.Time // when everything was planned anew because of that
	rescanAt    time.Time // zero: none is due

	scanFailures int // in a row

	// What is published again only when it may have changed: an idle server has
	// better things to do.
	changed      bool
	publishedAt  time.Time
	publishPause time.Duration // until the next one, at least
	publishedFor uint64        // events received by then
	healthLost   uint64        // records of health dropped by then

	resume     resume // of what could not be saved
	descending descending

	settledAt time.Time // the last Settled
	settling  settling  // the next one
	clockAt   time.Time // when the clock was last looked at
}

func newLoop(m *SyncManager) loop {
	return loop{
		m: m, rng: newRand(),
		plan:  plan.New(m.planConfig(), newRand()),
		conns: make(map[graspsync.RelayURL]*conn),
		stats: make(map[graspsync.RelayURL]*relayStats),
		held:  make(map[graspsync.RepoRef]*nip34.Announcement),
	}
}

func (l *loop) run(ctx context.Context) {
	status := time.NewTicker(statusEvery)
	defer status.Stop()
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	keep := time.NewTicker(keepEvery)
	defer keep.Stop()
	l.keeper = l.plan
	l.step(ctx, plan.Restore{
		Relays: l.m.remember.kept, Known: l.m.standing(), Tenures: l.m.remember.tenures.restored,
	})
	l.scan(ctx)
	for {
		var due <-chan time.Time
		if at, ok := l.nextWake(); ok {
			wake.Reset(time.Until(at))
			due = wake.C
		}
		select {
		case <-ctx.Done():
			for u, c := range l.conns {
				if c.stats.messages.Load() > 0 {
					l.m.health.Stopped(u)
				} else {
					l.m.health.Closed(u)
				}
			}
			last := l.status(time.Now())
			last.last = true
			l.m.snapshot.Store(last)
			return
		case <-l.m.inbox.wake:
			l.changed = true
			for _, msg := range l.m.inbox.take() {
				l.handle(ctx, msg)
			}
			l.publish(time.Now())
		case <-l.m.feed.wake:
			l.changed = true
			if l.window == nil && l.started {
				l.window = time.After(l.m.cfg.Times.BatchWindow)
			}
		case <-l.window:
			l.window, l.changed = nil, true
			l.closeWindow(ctx)
		case <-due:
			l.tick(ctx)
		case <-keep.C:
			for _, c := range l.conns {
				l.useful(ctx, c)
			}
			l.keep(ctx)
		case now := <-status.C:
			l.watchClock(ctx, time.Now())
			l.settle(ctx, time.Now())
			l.resumed(ctx, time.Now())
			l.descend(ctx, time.Now())
			l.complete(now)
			l.m.sets.forgetOld(now)
			l.publish(now)
		}
	}
}

func (l *loop) nextWake() (time.Time, bool) {
	at, ok := l.plan.NextWake()
	if !l.rescanAt.IsZero() && (!ok || l.rescanAt.Before(at)) {
		return l.rescanAt, true
	}
	return at, ok
}

func (l *loop) tick(ctx context.Context) {
	now := time.Now()
	if !l.rescanAt.IsZero() && !now.Before(l.rescanAt) {
		l.scan(ctx)
	}
	l.step(ctx, plan.Tick{})
}

// step has the plan decide about in, and does what it decides.
func (l *loop) step(ctx context.Context, in plan.Input) {
	l.changed = true
	for _, e := range l.plan.Step(time.Now(), in) {
		l.perform(ctx, e)
	}
}

// scan reads from the Store what is wanted: at the start, and daily, since what is
// removed by moderation or expiry reaches no feed.
func (l *loop) scan(ctx context.Context) {
	l.rescanAt = time.Time{}
	if l.scanning {
		return
	}
	l.scanning = true
	m := l.m
	m.wg.Go(func() {
		first, waited := !m.ready.Load(), make(map[absent.Key]struct{})
		authors := writers{most: m.cfg.fixed.MaxAuthors}
		announcements := 0
		snap, missed, err := m.index.scan(ctx, func(ev *nostr.Event) {
			if ev.Kind == graspsync.KindAnnouncement {
				announcements++
			}
			authors.add(ev)
			if first {
				m.ingest.awaited(ev, waited)
			}
		})
		if err != nil {
			m.post(scanned{err: err})
			return
		}
		if missed != nil {
			m.report.drop("scans", 1)
			m.cfg.Logger.Warn("not all that is stored could be read", keyErr, missed)
		}
		m.post(planInput{plan.Authors(authors.sorted())})
		change, ok := m.feed.replaceAll(snap)
		if !ok {
			m.post(scanned{err: errScanOvertaken})
			return
		}
		if !m.ready.Swap(true) {
			close(m.readable)
			if announcements > 0 && m.index.announcedRepos() == 0 {
				m.cfg.Logger.Warn("announcements are stored, and none lists us: is this our domain?",
					"announcements", announcements, "us", m.identity.String())
			}
		}
		m.post(scanned{})
		// What is asked for is asked of relays, which the plan knows from now on.
		if first {
			m.ingest.recalled(waited)
		}
		m.ingest.discovered(change)
	})
}

// writers is who wrote what we store: their deletions are asked for.
// Where there are too many it is a sample, another one at each scan, in which who has
// written more is more likely to be.
type writers struct {
	most    int
	seen    map[graspsync.PubKey]struct{}
	keys    []graspsync.PubKey // those seen, in any order
	leftOut int
}

func (w *writers) add(ev *nostr.Event) {
	a, err := graspsync.ParsePubKey(ev.PubKey)
	if _, known := w.seen[a]; err != nil || known {
		return
	}
	if len(w.keys) < w.most {
		w.keys = append(w.keys, a)
		lazy.Put(&w.seen, a, struct{}{})
		return
	}
	w.leftOut++
	if i := rand.IntN(w.most + w.leftOut); i < w.most {
		delete(w.seen, w.keys[i])
		w.keys[i] = a
		lazy.Put(&w.seen, a, struct{}{})
	}
}

func (w *writers) sorted() []graspsync.PubKey {
	return slices.SortedFunc(maps.Keys(w.seen), graspsync.PubKey.Compare)
}

var errScanOvertaken = errors.New("too much changed while the store was read")

func (l *loop) onScanned(ctx context.Context, msg scanned) {
	l.scanning = false
	if msg.err != nil {
		if ctx.Err() == nil {
			l.m.cfg.Logger.Warn("reading the store failed", keyErr, msg.err)
		}
		most := rescanMost
		if !l.started {
			most = rescanMostFirst
		}
		l.scanFailures++
		l.rescanAt = time.Now().Add(backoff.Doubled(rescanFirst, most, l.scanFailures))
		return
	}
	l.scanFailures = 0
	l.rescanAt = time.Now().Add(l.m.cfg.Times.DailyMin + rand.N(l.m.cfg.Times.DailyMax-l.m.cfg.Times.DailyMin+1))
	if !l.started {
		l.started = true
		for _, u := range l.m.cfg.Bootstrap {
			l.step(ctx, plan.Bootstrap{Relay: u})
		}
	}
	l.window = nil
	l.closeWindow(ctx)
	l.descending.all = true
	l.descend(ctx, time.Now())
}

// closeWindow acts on what the own feed has brought.
func (l *loop) closeWindow(ctx context.Context) {
	b := l.m.feed.take()
	l.hold(&b)
	l.m.report.drop("descendants", b.change.leftOut)
	for ref := range b.change.fresh {
		lazy.Put(&l.descending.of, ref, struct{}{})
	}
	defer l.descend(ctx, time.Now())
	if len(b.authors) > 0 {
		l.step(ctx, plan.Authors(b.authors))
	}
	if !b.all {
		l.step(ctx, l.changes(b.change))
		return
	}
	for ref := range l.held {
		if _, announced := b.change.repos[ref]; !announced {
			b.change.setRepo(ref, nil)
		}
	}
	l.step(ctx, plan.Snapshot(l.changes(b.change)))
}

// complete has everything planned anew if there may be room for more of it, once in a
// while: that costs as much as there is, and where a bound is reached there is room again
// and again.
func (l *loop) complete(now time.Time) {
	if l.incomplete && now.Sub(l.completedAt) >= completeEvery {
		l.incomplete, l.completedAt = false, now
		l.m.feed.tellAll()
	}
}

// hold brings what the policy holds back up to date.
func (l *loop) hold(b *feedBatch) {
	changed := func(ref graspsync.RepoRef) {
		b.change.setName(ref.Identifier)
		if _, also := b.change.repos[ref]; !also {
			b.change.setRepo(ref, l.m.index.announcement(ref))
		}
	}
	for ref, a := range b.held {
		l.held[ref] = a
		changed(ref)
	}
	for _, a := range b.unheld {
		if h := l.held[a.Ref]; h != nil && h.ID == a.ID {
			delete(l.held, a.Ref)
			changed(a.Ref)
		}
	}
}

// changes turns what the index says into what the plan wants to know.
func (l *loop) changes(c indexChange) plan.Changes {
	var out plan.Changes
	s := l.m.newTargets()
	s.give(c.repos)
	s.give(l.held)
	for ref, a := range c.repos {
		change := plan.RepoChange{Ref: ref}
		if a != nil {
			change.Level = plan.LevelFull
			delete(l.held, ref)
		} else if a = l.held[ref]; a != nil {
			change.Level = plan.LevelStateOnly
		}
		if a != nil {
			l.countDropped(a)
			l.follow(s, &change)
		}
		out.Repos = append(out.Repos, change)
	}
	for ref, level := range l.relatives(c.names) {
		if _, changed := c.repos[ref]; !changed {
			change := plan.RepoChange{Ref: ref, Level: level}
			l.follow(s, &change)
			out.Repos = append(out.Repos, change)
		}
	}
	for id, refs := range c.roots {
		out.Roots = append(out.Roots, plan.RootChange{ID: id, Repos: refs, CreatedAt: l.m.index.rootTime(id)})
	}
	for of, refs := range c.descendants {
		out.Descendants = append(out.Descendants, plan.DescendantChange{Of: of, Repos: refs})
	}
	return out
}

// follow sets the relays of a repository.
func (l *loop) follow(s *targets, c *plan.RepoChange) {
	relays, left := s.of(c.Ref)
	for _, r := range relays {
		if r.By == c.Ref.Owner {
			c.Relays = append(c.Relays, r.Relay)
		} else {
			c.Others = append(c.Others, r.Relay)
		}
	}
	l.m.report.drop("relays_listed", left)
}

// countDropped counts what of an announcement is not followed.
func (l *loop) countDropped(a *nip34.Announcement) {
	followed := a.Relays[:min(len(a.Relays), l.m.cfg.Limits.MaxRelaysPerRepo)]
	plaintext := 0
	for _, u := range followed {
		if l.m.tooPlain(u) && !l.m.ours(u) {
			plaintext++
		}
	}
	l.m.report.drop("plaintext", plaintext)
	l.m.report.drop("relays_listed", a.DroppedRelays+len(a.Relays)-len(followed))
	l.m.report.drop("clones_listed", a.DroppedClones)
	l.m.report.drop("maintainers_listed", a.DroppedMaintainers)
}

// handle takes in what a connection or a scan reports.
func (l *loop) handle(ctx context.Context, msg any) {
	switch msg := msg.(type) {
	case scanned:
		l.onScanned(ctx, msg)
	case planInput:
		l.step(ctx, msg.in)
	case asked:
		msg.answer(l)
	case lacking:
		l.onLacking(msg)
	case descended:
		l.onDescended(ctx, msg)
	case connected:
		l.onConnected(ctx, msg)
	case dialFailed:
		l.onDialFailed(ctx, msg)
	case lost:
		l.onLost(ctx, msg)
	case batchDone:
		l.onBatchDone(ctx, msg)
	case rateLimited:
		if l.conns[msg.conn.url] == msg.conn {
			l.m.health.RateLimited(msg.conn.url, msg.until)
			l.m.report.observe(RelayLimited{Relay: msg.conn.url, Until: msg.until})
			if msg.log {
				l.m.cfg.Logger.Warn("relay limits us", keyRelay, msg.conn.url.String(), keyReason, graspsync.Printable(msg.reason))
			}
		}
		l.step(ctx, plan.RateLimited{Relay: msg.conn.url, Epoch: msg.conn.epoch, Until: msg.until})
	}
}

func (l *loop) onConnected(ctx context.Context, msg connected) {
	c := msg.conn
	if l.conns[c.url] == c {
		c.stands = true
		l.m.health.Connected(c.url)
		l.m.remember.health(c.url)
		c.stats.connected(time.Now(), msg.info)
		l.m.cfg.Logger.Info("connected", keyRelay, c.url.String())
		l.m.report.observe(RelayConnected{Relay: c.url})
	}
	l.step(ctx, plan.Connected{Relay: c.url, Epoch: c.epoch, Limits: msg.limits, Address: msg.place})
}

func (l *loop) onDialFailed(ctx context.Context, msg dialFailed) {
	c := msg.conn
	if l.conns[c.url] != c || ctx.Err() != nil {
		return
	}
	delete(l.conns, c.url)
	if errors.Is(msg.err, errUnsaved) {
		l.step(ctx, plan.DialFailed{
			Relay: c.url, Epoch: c.epoch, RetryAt: l.notSaved(c.url), Good: l.m.health.KnownGood(c.url),
		})
		return
	}
	if errors.Is(msg.err, ErrNotDialed) {
		l.notDialed(ctx, c, msg.err)
		return
	}
	l.m.health.Failed(c.url, msg.err)
	l.m.remember.health(c.url)
	c.stats.failed(graspsync.Printable(msg.err.Error()))
	l.failure(c, msg.err)
	l.step(ctx, plan.DialFailed{
		Relay: c.url, Epoch: c.epoch, RetryAt: l.m.health.NextAttempt(c.url), Good: l.m.health.KnownGood(c.url),
	})
}

// notDialed has a relay tried again later that no attempt has reached.
func (l *loop) notDialed(ctx context.Context, c *conn, err error) {
	l.m.health.Closed(c.url)
	l.m.remember.health(c.url)
	c.stats.failed(graspsync.Printable(err.Error()))
	l.m.report.drop("not_dialed", 1)
	l.m.cfg.Logger.Debug("relay not dialed", keyRelay, c.url.String(), keyErr, err)
	var asks interface{ RetryAfter() time.Duration }
	at := l.m.health.NextAttempt(c.url)
	if errors.As(err, &asks) {
		at = latest(at, time.Now().Add(asks.RetryAfter()))
	}
	l.step(ctx, plan.DialFailed{
		Relay: c.url, Epoch: c.epoch, RetryAt: at, Good: l.m.health.KnownGood(c.url), NotDialed: true,
	})
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (l *loop) onLost(ctx context.Context, msg lost) {
	c := msg.conn
	if l.conns[c.url] != c || ctx.Err() != nil {
		return
	}
	delete(l.conns, c.url)
	if errors.Is(msg.err, errHostile) || errors.Is(msg.err, errUnproductive) {
		l.m.health.Hostile(c.url)
		l.m.report.observe(RelayHostile{Relay: c.url})
	} else {
		l.m.health.Lost(c.url, msg.err)
	}
	l.m.remember.relay(c.url, c.stats)
	c.stats.failed(graspsync.Printable(msg.err.Error()))
	l.connectionLost(c, msg.err)
	l.step(ctx, plan.Lost{
		Relay: c.url, Epoch: c.epoch, AliveAt: msg.aliveAt, Cursors: msg.cursors,
		RetryAt: l.m.health.NextAttempt(c.url), Good: l.m.health.KnownGood(c.url),
	})
}

func (l *loop) onBatchDone(ctx context.Context, msg batchDone) {
	c, done := msg.conn, l.cameTo(msg)
	l.resume.late = l.resume.late || done.Unsaved
	c.stats.batch(msg.done.Report, time.Now())
	l.useful(ctx, c)
	l.batchEnded(msg, done.Result)
	l.step(ctx, done)
	if ids := msg.done.Report.Unserved; len(ids) > 0 {
		l.step(ctx, plan.Unserved{Relay: c.url, IDs: ids})
	}
}

// cameTo returns what a batch came to, with what the pipeline made of its events.
func (l *loop) cameTo(msg batchDone) plan.Done {
	c, report := msg.conn, msg.done.Report
	done := plan.Done{
		Relay: c.url, Epoch: c.epoch, Batch: msg.batch.ID, Result: msg.done.Result, Cursors: msg.done.Cursors,
		Reconciled: report.Method&session.Negent == session.Negent,
	}
	if msg.token.failed.Load() {
		// Something that came could not be saved: how far the pages got says
		// nothing about what we have.
		done.Result, done.Cursors, done.Unsaved = plan.Failed, nil, true
		return done
	}
	if done.Result == plan.Failed {
		// What took too long had us not reading.
		done.Unsaved = l.m.ingest.stuckSince(msg.since)
		done.Late = !done.Unsaved && report.Late
	}
	return done
}

// usefulEvery is how often it is noted that a relay goes on bringing what nobody else had.
const usefulEvery = time.Hour

// useful notes if a relay has brought what nobody else had since it was last looked at:
// for some days it comes before others where connections are scarce.
func (l *loop) useful(ctx context.Context, c *conn) {
	stored, now := c.stats.stored.Load(), time.Now()
	if stored == c.stored || !c.usefulAt.IsZero() && now.Sub(c.usefulAt) < usefulEvery {
		return
	}
	c.stored, c.usefulAt = stored, now
	l.m.health.Useful(c.url)
	l.step(ctx, plan.Useful{Relay: c.url, Epoch: c.epoch})
}

// perform does what the plan wants done.
func (l *loop) perform(ctx context.Context, e plan.Effect) {
	switch e := e.(type) {
	case plan.Dial:
		l.dial(ctx, e)
	case plan.Hangup:
		l.hangup(e.Relay, e.Epoch)
	case plan.Forget:
		l.forget(e.Relay)
	case plan.OpenLive:
		if c := l.conn(e.Relay, e.Epoch); c != nil {
			c.follow(e.Live, e.Filters, e.Last)
		}
	case plan.CloseLive:
		if c := l.conn(e.Relay, e.Epoch); c != nil {
			c.unfollow(e.Live)
		}
	case plan.Start:
		if c := l.conn(e.Relay, e.Epoch); c != nil {
			c.fetch(e.Batch)
		}
	case plan.Cancel:
		if c := l.conn(e.Relay, e.Epoch); c != nil {
			c.abandon(e.Batch)
		}
	case plan.Confirmed:
		l.m.cfg.Logger.Info("batch confirmed", keyRelay, e.Relay.String(), keyItems, e.Items)
	case plan.Reset:
		l.m.cfg.Logger.Info("confirmed state forgotten", keyRelay, e.Relay.String(), "daily", e.Daily)
		l.passStarted(e)
	case plan.Incomplete:
		l.incomplete = true
	case plan.Dropped:
		l.m.report.drop(e.Reason, e.Count)
	}
}

// resume is how events are asked for again that could not be saved, once they can.
type resume struct {
	missed  map[graspsync.RelayURL]time.Time // since when events of a relay were let go of
	nothing bool                             // can be saved, as the plan knows it
	late    bool                             // something failed for that since
	at      time.Time                        // the last time
	pause   time.Duration                    // until the next one
}

const (
	resumeFirst = time.Minute // between two times
	resumeMost  = time.Hour   // the same, where saving fails again and again
)

// resumed goes on with what could not be saved once it can be again: what had to wait for
// that is asked for, and relays of which events were let go of are asked since then. What
// is not connected to is as soon as it is.
func (l *loop) resumed(ctx context.Context, now time.Time) {
	r := &l.resume
	if nothing := l.m.ingest.savesNothing(); nothing && !r.nothing {
		r.nothing = true
		l.step(ctx, plan.Saving{Nothing: true})
	}
	if now.Sub(r.at) < r.pause {
		return
	}
	missed, again := l.m.ingest.takeMissed(r.late)
	for u, since := range missed {
		if at, known := r.missed[u]; !known || since.Before(at) {
			lazy.Put(&r.missed, u, since)
		}
	}
	if again {
		if r.pause = min(max(2*r.pause, resumeFirst), resumeMost); now.Sub(r.at) > 2*resumeMost {
			r.pause = resumeFirst
		}
		r.at, r.late, r.nothing = now, false, false
		l.step(ctx, plan.Saving{})
	}
	for u, since := range r.missed {
		c := l.conns[u]
		switch {
		case l.stats[u] == nil: // it is forgotten
		case c == nil || !c.stands:
			continue
		default:
			l.step(ctx, plan.Skipped{Relay: u, Epoch: c.epoch, Since: since})
		}
		delete(r.missed, u)
	}
}

func (l *loop) conn(u graspsync.RelayURL, epoch uint64) *conn {
	if c := l.conns[u]; c != nil && c.epoch == epoch {
		return c
	}
	return nil
}

func (l *loop) dial(ctx context.Context, e plan.Dial) {
	if at := l.m.health.NextAttempt(e.Relay); at.After(time.Now()) {
		// A relay that was forgotten and is listed again keeps its backoff.
		l.m.cfg.Logger.Debug("attempt skipped by backoff", keyRelay, e.Relay.String(), keyBackoff, time.Until(at))
		l.m.post(planInput{plan.DialFailed{
			Relay: e.Relay, Epoch: e.Epoch, RetryAt: at, Good: l.m.health.KnownGood(e.Relay),
		}})
		return
	}
	stats := l.stats[e.Relay]
	if stats == nil {
		stats = l.m.remember.stats(e.Relay)
		l.stats[e.Relay] = stats
	}
	l.m.health.Attempt(e.Relay)
	c := newConn(ctx, l.m.connEnv(), e.Relay, e.Epoch, stats)
	l.conns[e.Relay] = c
	l.m.wg.Go(c.run)
}

func (l *loop) hangup(u graspsync.RelayURL, epoch uint64) {
	if c := l.conn(u, epoch); c != nil {
		c.hangup()
		delete(l.conns, u)
		l.m.health.Closed(u)
		l.m.remember.health(u)
	}
}

// failure reports a failed attempt, and once that the relay is dead.
func (l *loop) failure(c *conn, err error) {
	st := l.m.health.Status(c.url)
	backoff := time.Until(st.NextAttempt).Round(time.Millisecond)
	args := []any{keyRelay, c.url.String(), keyAttempt, st.Failures, keyBackoff, backoff}
	if l.m.report.mayLog(c.url, classFailed) {
		l.m.cfg.Logger.Warn("connection failed", append(args, keyErr, graspsync.Printable(err.Error()))...)
	} else {
		l.m.cfg.Logger.Debug("connection failed", args...)
	}
	l.m.report.observe(RelayFailed{Relay: c.url, Attempt: st.Failures, Backoff: backoff, Err: err})
	if st.State != health.Dead {
		c.stats.dead = false
		return
	}
	if !c.stats.dead {
		c.stats.dead = true
		l.m.cfg.Logger.Error("relay dead", keyRelay, c.url.String(), keyAttempt, st.Failures, "since", st.FailingSince)
		l.m.report.observe(RelayDead{Relay: c.url, Since: st.FailingSince})
	}
}

func (l *loop) connectionLost(c *conn, err error) {
	if l.m.report.mayLog(c.url, classLost) {
		l.m.cfg.Logger.Info("connection lost", keyRelay, c.url.String(), keyErr, graspsync.Printable(err.Error()))
	} else {
		l.m.cfg.Logger.Debug("connection lost", keyRelay, c.url.String())
	}
	l.m.report.observe(RelayLost{Relay: c.url, Err: err})
}

// batchEnded reports the end of a batch, whatever it was.
func (l *loop) batchEnded(msg batchDone, result plan.Result) {
	u, r, items, kind := msg.conn.url, msg.done.Report, msg.batch.Items, kindName(msg.batch.Kind)
	log := l.m.cfg.Logger.With(keyRelay, u.String(), keyItems, items)
	if result >= plan.Failed {
		reason := graspsync.Printable(r.Err)
		if reason == "" && result == plan.Failed {
			reason = "some events could not be saved"
		}
		if l.m.report.mayLog(u, classBatch) {
			log.Warn("fetching history failed", keyErr, reason)
		}
		l.m.report.observe(BatchFailed{Relay: u, Kind: kind, Items: items, Reason: reason})
	} else {
		l.m.report.observe(BatchConfirmed{
			Relay: u, Kind: kind, Items: items, Events: r.Events, Method: r.Method.String(),
			Gaps: result == plan.Gaps, Duration: time.Since(msg.since),
		})
	}
	if (r.Missing > 0 || r.Seconds > 0) && l.m.report.mayLog(u, classIncomplete) {
		log.Warn("history has gaps", "missing_events", r.Missing, "full_seconds", r.Seconds)
	}
}

func kindName(k plan.Kind) string {
	switch k {
	case plan.History:
		return "history"
	case plan.DailyHistory:
		return "daily"
	case plan.Recent:
		return "recent"
	case plan.Deletions:
		return "deletions"
	}
	return "other"
}

// passStarted begins to compare anew what a relay lacks.
func (l *loop) passStarted(e plan.Reset) {
	if st := l.stats[e.Relay]; st != nil {
		st.coverage.begin()
	}
	l.m.report.observe(PassStarted{Relay: e.Relay, Daily: e.Daily})
}

// onLacking counts the events that a relay should have: those of repositories that are followed
// there.
func (l *loop) onLacking(msg lacking) {
	var events [][]graspsync.RepoRef
	for _, refs := range msg.events {
		refs = slices.DeleteFunc(refs, func(ref graspsync.RepoRef) bool { return !l.plan.Follows(ref, msg.conn.url) })
		if len(refs) > 0 {
			events = append(events, refs)
		}
	}
	msg.conn.stats.coverage.counted(events)
}

// peerLacks warns of what a relay that was compared to its end lacks.
func (l *loop) peerLacks(u graspsync.RelayURL, st *relayStats, now time.Time) {
	ref, count, repos := st.coverage.worst(now)
	if count == 0 {
		return
	}
	l.m.cfg.Logger.Warn("peer lacks events that we have", keyRelay, u.String(),
		"repo", graspsync.Printable(ref.String()), "count", count, "repos", repos)
	l.m.report.observe(PeerLacks{Relay: u, Repo: ref, Count: count})
}

// relatives returns the repositories under some identifiers whose owners list somebody, and how
// much is wanted of them: announcements of others may change where they are followed.
func (l *loop) relatives(names map[string]struct{}) map[graspsync.RepoRef]plan.Level {
	out := make(map[graspsync.RepoRef]plan.Level)
	add := func(a *nip34.Announcement, level plan.Level) {
		if slices.ContainsFunc(a.Maintainers, func(m graspsync.PubKey) bool { return m != a.Ref.Owner }) {
			out[a.Ref] = level
		}
	}
	if len(names) > 0 {
		for ref, a := range l.held {
			if _, changed := names[ref.Identifier]; changed {
				add(a, plan.LevelStateOnly)
			}
		}
	}
	for name := range names {
		for _, a := range l.m.index.Announcements(name) {
			add(a, plan.LevelFull)
		}
	}
	return out
}

const (
	settleEvery = time.Minute // between two Settled
	leastJump   = time.Minute // of the wall clock
)

// settling is the wait for all that had been received at a moment to be dealt with.
// What comes later is not waited for, so that it has an end however much comes.
type settling struct {
	at   time.Time
	read map[*conn]uint64                // messages that were read then and not in the pipeline yet
	last stage                           // of the pipeline, once they all are in it
	in   bool                            // they are
	late map[graspsync.RelayURL]struct{} // relays of which not all was read then
}

// settle tells the plan, once a minute, up to when all that was received is dealt with.
// What fails and is tried again is not: it holds up the relays that brought it, and no
// others.
func (l *loop) settle(ctx context.Context, now time.Time) {
	s := &l.settling
	if s.at.IsZero() {
		if !l.started || now.Sub(l.settledAt) < settleEvery {
			return
		}
		*s = settling{at: now, read: make(map[*conn]uint64)}
		for _, c := range l.conns {
			s.read[c] = c.ahead.read.Load()
			if !c.signs.behind(c.ahead.done()).IsZero() {
				lazy.Put(&s.late, c.url, struct{}{})
			}
		}
		l.catchUp(ctx, now)
	}
	// First what was read is looked for, then the pipeline: that is the way things go.
	for c, n := range s.read {
		if l.conns[c.url] == c && c.ahead.taken.Load() < n {
			return
		}
	}
	if !s.in {
		s.in, s.last = true, l.m.ingest.stage()
	}
	failing, resting := l.m.ingest.resting(s.last)
	if !resting {
		return
	}
	at := s.at
	for u := range s.late {
		lazy.Put(&failing, u, struct{}{})
	}
	*s, l.settledAt = settling{}, now
	l.step(ctx, plan.Settled{At: at, Except: failing})
}

// catchUp has the plan ask for what connections have left out.
func (l *loop) catchUp(ctx context.Context, now time.Time) {
	for u, c := range l.conns {
		if since := c.signs.takeSkipped(now); !since.IsZero() {
			l.step(ctx, plan.Skipped{Relay: u, Epoch: c.epoch, Since: since})
		}
	}
}

// watchClock tells the plan if the wall clock was set. The plan compares times by
// the monotonic clock, but what it asks relays for is in wall time.
func (l *loop) watchClock(ctx context.Context, now time.Time) {
	last := l.clockAt
	l.clockAt = now
	if last.IsZero() {
		return
	}
	if by, jumped := clockJump(now.Round(0).Sub(last.Round(0)), now.Sub(last)); jumped {
		l.m.cfg.Logger.Warn("the clock was set", "by", by)
		l.settling = settling{} // it began at another time
		l.step(ctx, plan.ClockJumped{By: by})
	}
}

// clockJump returns by how much the wall clock went ahead of the monotonic one, and
// whether that is more than clocks are corrected by.
func clockJump(wall, monotonic time.Duration) (by time.Duration, jumped bool) {
	by = (wall - monotonic).Round(time.Second)
	return by, by > leastJump || by < -leastJump
}

// descending is when the Store is asked next for what descends from what is ours. It belongs
// to the loop.
type descending struct {
	running  bool
	all      bool                           // of all repositories
	of       map[graspsync.RepoRef]struct{} // or of these
	failures int                            // in a row
	at       time.Time                      // not before
}

// descended says that the Store was asked for what descends from repositories; nil: all.
type descended struct {
	of  map[graspsync.RepoRef]struct{}
	err error
}

// descend starts to look for what descends from repositories that have become ours, or of all
// after a scan, unless that is under way. It is of less concern than anything else, and nobody
// waits for it.
func (l *loop) descend(ctx context.Context, now time.Time) {
	d := &l.descending
	if d.running || !d.all && len(d.of) == 0 || now.Before(d.at) {
		return
	}
	of := d.of
	if d.all {
		of = nil
	}
	d.running, d.all, d.of = true, false, nil
	m := l.m
	m.wg.Go(func() {
		err := m.descend(ctx, of)
		m.post(descended{of, err})
	})
}

func (l *loop) onDescended(ctx context.Context, msg descended) {
	d := &l.descending
	d.running = false
	switch {
	case msg.err == nil:
		d.failures, d.at = 0, time.Time{}
	case errors.Is(msg.err, ErrIncomplete): // what came counts, and a scan says that there is more
		d.failures, d.at = 0, time.Time{}
	case ctx.Err() == nil:
		l.m.cfg.Logger.Warn("reading the store failed", keyErr, msg.err)
		d.failures++
		d.at = time.Now().Add(backoff.Doubled(rescanFirst, rescanMost, d.failures))
		d.all = d.all || msg.of == nil
		for ref := range msg.of {
			lazy.Put(&d.of, ref, struct{}{})
		}
	}
	l.descend(ctx, time.Now())
}

// publish makes a new snapshot for readers, if anything has happened and the last one is
// old enough: with very many relays it costs so much that it may take no more than a
// small share of the time.
func (l *loop) publish(now time.Time) {
	age := now.Sub(l.publishedAt)
	received, busy := l.m.report.received.Load(), l.m.ingest.unsettled.Load() > 0
	if age < l.publishPause || !l.changed && !busy && received == l.publishedFor && age < statusMost {
		return
	}
	l.changed, l.publishedFor = busy, received
	l.m.snapshot.Store(l.status(now))
	l.publishedAt = now
	l.publishPause = max(statusLeast, statusShare*time.Since(now))
}

// status says what there is at now.
func (l *loop) status(now time.Time) *Status {
	g, k := l.m.ingest, l.m.report
	lost := l.m.health.Dropped()
	k.drop("health", int(lost-l.healthLost))
	l.healthLost = lost
	s := &Status{At: now, Events: EventStatus{
		Received: k.received.Load(), Duplicates: k.duplicates.Load(), Verified: k.verified.Load(),
		Forged: k.forged.Load(), Stored: k.results[graspsync.Stored].Load(), Superseded: k.results[graspsync.Superseded].Load(),
		Deleted: k.results[graspsync.Deleted].Load(), Refused: k.results[graspsync.Refused].Load(),
		Held: k.held.Load(), Failed: k.failed.Load(),
		InFlight: g.unsettled.Load(), Waiting: g.waiting.Load(),
	}}
	k.reasons(&s.Events)
	s.Events.Sources = k.bySource()
	s.OwnFeed = l.m.own.status()
	s.Relays = []RelayStatus{}
	s.Repos, s.Roots = l.plan.Repos()
	quiet := l.started && !l.scanning && !l.m.feed.pending() && s.Events.InFlight == 0 && g.owed.Load() == 0 &&
		(s.OwnFeed == nil || s.OwnFeed.Complete && s.OwnFeed.Connected)
	s.Synced = quiet
	some := false // relays that were fetched from to their end
	for _, p := range l.plan.Status() {
		if st := l.stats[p.Relay]; st != nil {
			l.label(st)
		}
		r := l.relayStatus(p)
		r.Synced = quiet && (p.Phase == plan.Live || p.Phase == plan.LiveWithGaps) && p.InFlight == 0 &&
			p.Wanted == p.Confirmed
		if st := l.stats[p.Relay]; st != nil {
			news := st.noteSynced(now, r.Synced)
			r.SyncTime = st.syncTime()
			if news {
				l.m.report.observe(RelaySynced{Relay: p.Relay, Duration: r.SyncTime})
			}
			if r.Synced {
				l.peerLacks(p.Relay, st, now)
			}
		}
		unreachable := p.Phase <= plan.Connecting && r.Failures > 0
		s.Synced = s.Synced && (r.Synced || unreachable)
		some = some || r.Synced
		s.Relays = append(s.Relays, r)
	}
	s.Synced = s.Synced && (some || len(s.Relays) == 0)
	s.gone, s.goneAny = l.gone, l.goneAny
	return s
}

// label gives a relay metrics of its own, as long as there are labels left. It keeps
// them until it is forgotten, so that no counter ever goes down.
func (l *loop) label(st *relayStats) {
	if !st.labelled && l.labels < l.m.cfg.Limits.MaxLabels {
		st.labelled = true
		l.labels++
	}
}

// forget drops what is known of a relay. What it counted under the shared label
// stays.
func (l *loop) forget(u graspsync.RelayURL) {
	if st := l.stats[u]; st != nil && st.labelled {
		l.labels--
	} else {
		r := l.relayStatus(plan.RelayStatus{Relay: u})
		l.goneAny = true
		l.gone.Gaps += r.Gaps
		l.gone.Lasting += r.Lasting
		l.gone.Disconnects += r.Disconnects
		l.gone.Reconnects += r.Reconnects
		l.gone.Connects += r.Connects
		l.gone.FailedAttempts += r.FailedAttempts
	}
	if st := l.stats[u]; st != nil {
		l.m.remember.setAllowances(u, st, time.Now())
	}
	delete(l.stats, u)
	l.m.report.observe(RelayForgotten{Relay: u})
	l.m.health.Forget(u)
	l.m.remember.forget(u)
}

func (l *loop) relayStatus(p plan.RelayStatus) RelayStatus {
	h := l.m.health.Status(p.Relay)
	r := RelayStatus{
		URL: p.Relay, Phase: p.Phase.String(), Health: h.State.String(), phase: p.Phase, health: h.State,
		Bootstrap: p.Bootstrap, Repos: p.Repos, Examples: p.Examples,
		Wanted: p.Wanted, InFlight: p.InFlight, Confirmed: p.Confirmed,
		Descendants: p.Descendants, DescendantsLive: p.DescendantsLive,
		LiveSubscriptions: p.LiveSubs, LiveFilters: p.LiveFilters, Unfollowed: p.Unfollowed,
		Attempts: h.Attempts, Connects: h.Connections, FailedAttempts: h.FailedAttempts,
		Disconnects: h.Disconnects, Reconnects: h.Reconnects,
		Failures: h.Failures, NextPass: p.DailyAt,
		Batches: p.Batches, Parked: p.Parked, GapBatches: p.Gaps,
		Uptime: h.Uptime, Downtime: h.Downtime, UptimeShare: h.UptimeShare(),
		Following: following(p),
	}
	if p.Phase == plan.Disconnected {
		r.NextAttempt = p.RetryAt
	}
	if p.CoolUntil.After(time.Now()) {
		r.RateLimitedUntil = p.CoolUntil
	}
	if st := l.stats[p.Relay]; st != nil {
		r.labelled = st.labelled
		st.fill(&r)
	}
	return r
}

// following says how a relay is followed.
func following(p plan.RelayStatus) string {
	switch {
	case p.Phase < plan.Syncing:
		return ""
	case p.Unfollowed > 0 && p.LiveMethod == plan.LiveAll:
		return "live in part"
	}
	return p.LiveMethod.String()
}

func (l *loop) repoStatus(p plan.RepoStatus) RepoStatus {
	s := RepoStatus{
		Ref: p.Ref, Level: "full", Roots: p.Roots,
		Wanted: p.Wanted, InFlight: p.InFlight, Confirmed: p.Confirmed, Relays: []RepoRelay{},
	}
	if p.Level == plan.LevelStateOnly {
		s.Level = "state only"
	}
	listers := l.listers(p.Ref)
	for _, r := range p.Relays {
		relay := RepoRelay{
			URL: r.Relay, ListedBy: listers[r.Relay], Phase: r.Phase.String(), Live: r.Live,
			Wanted: r.Wanted, InFlight: r.InFlight, Confirmed: r.Confirmed,
		}
		if st := l.stats[r.Relay]; st != nil {
			relay.Lacks, relay.Missed, relay.ComparedAt = st.coverage.of(p.Ref)
		}
		s.Relays = append(s.Relays, relay)
	}
	return s
}

// listers returns who names the relays of a repository.
func (l *loop) listers(ref graspsync.RepoRef) map[graspsync.RelayURL]graspsync.PubKey {
	s := l.m.newTargets()
	s.give(l.held)
	by := make(map[graspsync.RelayURL]graspsync.PubKey)
	relays, _ := s.of(ref)
	for _, r := range relays {
		by[r.Relay] = r.By
	}
	return by
}

// keep keeps what changes all the time, once in a while.
func (l *loop) keep(ctx context.Context) {
	r := l.m.remember
	if !r.on {
		return
	}
	for u := range l.conns {
		r.relay(u, l.stats[u])
	}
	if r.busy {
		return
	}
	r.busy = true
	r.pending.capture(l.keeper)
	l.keepTenures()
	l.m.wg.Go(func() {
		err := r.export(ctx)
		l.m.post(asked{func(*loop) {
			if r.busy = false; err == nil {
				r.confirmed()
			}
		}})
	})
}

// keepTenures has it kept since when owners are here, once it is known who they are.
func (l *loop) keepTenures() {
	if l.started {
		l.m.remember.tenures.set(l.plan.Tenures())
	}
}

// keepAll keeps everything, at the end.
func (l *loop) keepAll() {
	r := l.m.remember
	if !r.on {
		return
	}
	for u, s := range l.stats {
		r.relay(u, s)
	}
	r.pending.capture(l.keeper)
	l.keepTenures()
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if r.export(ctx) == nil {
		r.confirmed()
	}
}

// notSaved has a relay tried again later that was not dialed.
func (l *loop) notSaved(u graspsync.RelayURL) (retryAt time.Time) {
	l.m.health.Closed(u)
	retryAt = time.Now().Add(notDialed)
	if at := l.m.health.NextAttempt(u); at.After(retryAt) {
		return at
	}
	return retryAt
}
