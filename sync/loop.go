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
			m.counters.drop("scans", 1)
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
	l.m.counters.drop("descendants", b.change.leftOut)
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
	l.m.counters.drop("relays_listed", left)
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
	l.m.counters.drop("plaintext", plaintext)
	l.m.counters.drop("relays_listed", a.DroppedRelays+len(a.Relays)-len(followed))
	l.m.counters.drop("clones_listed", a.DroppedClones)
	l.m.counters.drop("maintainers_listed", a.DroppedMaintainers)
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
			l.m.observe(RelayLimited{Relay: msg.conn.url, Until: msg.until})
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
		l.m.observe(RelayConnected{Relay: c.url})
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
	l.m.counters.drop("not_dialed", 1)
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
		l.m.observe(RelayHostile{Relay: c.url})
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

// standing is what is known from before a restart of all relays.
func (m *SyncManager) standing() []plan.Standing {
	var out []plan.Standing
	for u, s := range m.health.All() {
		if s.KnownGood || s.Useful {
			out = append(out, plan.Standing{Relay: u, Good: s.KnownGood, UsefulAt: s.UsefulAt})
		}
	}
	return out
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
		l.m.counters.drop(e.Reason, e.Count)
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
	c := newConn(ctx, l.m, e.Relay, e.Epoch, stats)
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
