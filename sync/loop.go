package sync

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
)

const (
	minStatusPause = 100 * time.Millisecond // between two snapshots
	statusEvery    = time.Second
	maxStatusPause = time.Minute // because the health of relays changes with time
	statusShare    = 20          // snapshots take at most 1/20 of the time
)

// loop owns the plan. It runs on one goroutine, passes inputs to the plan and performs its effects.
type loop struct {
	m     *SyncManager
	plan  *plan.Plan // made by run
	conns map[graspsync.RelayURL]*relayConn
	stats map[graspsync.RelayURL]*relayStats

	bootstrap []graspsync.RelayURL // followed even if no repository lists them

	scanning  bool
	scanAgain bool             // the rules have changed since the scan began
	started   bool             // the first scan has succeeded
	window    <-chan time.Time // open batch window, nil if none

	rescanAt time.Time // zero: none is due

	scanFailures int // in a row

	savesNothing bool      // at the last check
	resumedAt    time.Time // the last plan.Saves

	settledAt time.Time // the last plan.Settled
	// A round of settle waits until all messages that were received before its start are processed.
	roundAt     time.Time             // its start, zero: none
	roundRead   map[*relayConn]uint64 // number of messages that were read at its start
	roundQueued time.Time             // when all messages of roundRead were in the pipeline
	clockAt     time.Time             // the last call of watchClock

	changed      bool          // since the last snapshot
	publishedAt  time.Time     // the last snapshot
	publishPause time.Duration // minimum time until the next snapshot
	publishedFor uint64        // events received before the last snapshot
	healthLost   uint64        // dropped health records that are already counted
	storeErr     string        // of the last scan
}

func newLoop(m *SyncManager) *loop {
	return &loop{
		m: m, bootstrap: slices.Clone(m.cfg.Bootstrap), conns: make(map[graspsync.RelayURL]*relayConn),
		stats: make(map[graspsync.RelayURL]*relayStats),
	}
}

func (l *loop) run(ctx context.Context) {
	status := time.NewTicker(statusEvery)
	defer status.Stop()
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	keep := time.NewTicker(keepEvery)
	defer keep.Stop()
	l.plan = plan.New(l.planConfig(), rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	l.step(ctx, plan.Restore{Relays: l.m.persistence.kept})
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
			l.m.snapshot.Store(l.status(time.Now()))
			return
		case <-l.m.inbox.wake:
			l.changed = true
			for _, msg := range l.m.inbox.take() {
				msg.handle(ctx, l)
			}
			l.publish(time.Now())
		case <-l.m.self.wake:
			l.changed = true
			if l.window == nil && l.started {
				l.window = time.After(l.m.cfg.BatchWindow)
			}
		case <-l.window:
			l.window, l.changed = nil, true
			l.closeWindow(ctx)
		case <-due:
			l.tick(ctx)
		case <-keep.C:
			l.saveState(ctx)
		case now := <-status.C:
			l.watchClock(ctx, time.Now())
			l.settle(ctx, time.Now())
			l.checkSaving(ctx, now)
			l.publish(now)
		}
	}
}

func (l *loop) planConfig() plan.Config {
	cfg := l.m.cfg
	least, most := cfg.passBetween()
	return plan.Config{
		Salt:     l.m.persistence.salt,
		MaxDials: cfg.constants.MaxDials, DialEvery: dialEvery, MaxConnections: cfg.MaxConnections,
		MaxRelays: cfg.constants.MaxRelays, MaxRoots: cfg.MaxRootsPerRepo,
		MaxAuthors: maxAuthors, AuthorsPerPass: authorsPerPass,
		MaxBatches:   maxBatches,
		BatchTimeout: batchTimeout, Overlap: overlap, QuickReconnect: quickReconnect,
		DailyMin: least, DailyMax: most,
		RetryBase: retryBase, RetryMax: retryMax,
		PollEvery: pollEvery, PollFilters: 20, MaxNamed: 10_000, NamedIDs: idsPerRequest,
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

// step passes an input to the plan, and its effects to the connections.
func (l *loop) step(ctx context.Context, in plan.Input) {
	l.changed = true
	for _, e := range l.plan.Step(time.Now(), in) {
		l.perform(ctx, e)
	}
}

func (l *loop) perform(ctx context.Context, e plan.Effect) {
	switch e := e.(type) {
	case plan.Dial:
		l.dial(ctx, e)
	case plan.Hangup:
		l.hangup(e.Relay, e.Epoch)
	case plan.Forget:
		l.forget(e.Relay)
	case plan.OpenLive:
		l.sendEffect(e.Relay, e.Epoch, e)
	case plan.CloseLive:
		l.sendEffect(e.Relay, e.Epoch, e)
	case plan.Start:
		l.sendEffect(e.Relay, e.Epoch, e)
	case plan.Cancel:
		l.sendEffect(e.Relay, e.Epoch, e)
	case plan.Reset:
		l.m.cfg.Logger.Debug("confirmed state dropped", keyRelay, e.Relay.String(), "daily", e.Daily)
	case plan.Dropped:
		l.m.telemetry.drop(e.Reason, e.Count)
	}
}

// sendEffect passes an effect to a connection, see relayConn.handle.
func (l *loop) sendEffect(u graspsync.RelayURL, epoch uint64, e plan.Effect) {
	if c := l.conn(u, epoch); c != nil {
		c.mailbox.put(connMessage{effect: e})
	}
}

func (l *loop) conn(u graspsync.RelayURL, epoch uint64) *relayConn {
	if c := l.conns[u]; c != nil && c.epoch == epoch {
		return c
	}
	return nil
}

func (msg connOpened) handle(ctx context.Context, l *loop) {
	c := msg.conn
	if l.conns[c.url] == c {
		c.connected = true
		l.m.health.Connected(c.url)
		l.m.persistence.health(c.url)
		c.stats.with(func() { c.stats.software, c.stats.lastErr = c.info.Software, "" })
		l.m.cfg.Logger.Info("connected", keyRelay, c.url.String())
	}
	l.step(ctx, plan.Connected{Relay: c.url, Epoch: c.epoch, Limits: msg.limits})
}

func (msg connEnd) handle(ctx context.Context, l *loop) {
	c := msg.conn
	if l.conns[c.url] != c || ctx.Err() != nil {
		return
	}
	delete(l.conns, c.url)
	if !c.connected {
		l.notConnected(ctx, c, msg.err)
		return
	}
	switch {
	case errors.Is(msg.err, errHostile), errors.Is(msg.err, errUnproductive):
		l.m.health.Hostile(c.url)
		l.m.telemetry.observe(Observation{Is: RelayHostile, Source: graspsync.Source{Relay: c.url}})
	case errors.Is(msg.err, errHung):
		l.m.health.Hung(c.url, msg.err)
	default:
		l.m.health.Lost(c.url, msg.err)
	}
	l.m.persistence.relay(c.url, c.stats)
	c.stats.failed(graspsync.Printable(msg.err.Error()))
	l.m.telemetry.remote(slog.LevelInfo, c.url, "connection lost", keyErr, graspsync.Printable(msg.err.Error()))
	l.step(ctx, plan.Lost{
		Relay: c.url, Epoch: c.epoch, AliveAt: msg.aliveAt, Cursors: msg.cursors,
		RetryAt: l.m.health.NextAttempt(c.url),
	})
}

func (l *loop) notConnected(ctx context.Context, c *relayConn, err error) {
	var earliest time.Time
	unsaved, unsent := errors.Is(err, errUnsaved), errors.Is(err, ErrNotDialed)
	switch {
	case unsaved:
		l.m.health.Closed(c.url)
		earliest = time.Now().Add(notDialed)
	case unsent: // nothing was sent to the relay
		l.m.health.Closed(c.url)
		l.m.telemetry.drop("not_dialed", 1)
		l.m.cfg.Logger.Debug("relay not dialed", keyRelay, c.url.String(), keyErr, err)
		var asks interface{ RetryAfter() time.Duration }
		if errors.As(err, &asks) {
			earliest = time.Now().Add(asks.RetryAfter())
		}
	case errors.Is(err, ErrForbidden):
		l.m.health.Refused(c.url, err)
	default:
		l.m.health.Failed(c.url, err)
	}
	if !unsaved {
		l.m.persistence.health(c.url)
		c.stats.failed(graspsync.Printable(err.Error()))
	}
	if !unsaved && !unsent {
		l.m.logFailure(c, err)
	}
	l.step(ctx, plan.DialFailed{
		Relay: c.url, Epoch: c.epoch, RetryAt: backoff.Later(earliest, l.m.health.NextAttempt(c.url)), NotDialed: unsent,
	})
}

func (msg batchResult) handle(ctx context.Context, l *loop) {
	c, done := msg.conn, l.doneOf(msg)
	c.stats.batch(msg.done.Report, time.Now())
	l.m.logBatch(msg, done.Result)
	l.step(ctx, done)
	if ids := msg.done.Report.Unserved; len(ids) > 0 {
		l.step(ctx, plan.Unserved{Relay: c.url, IDs: ids})
	}
}

func (l *loop) doneOf(msg batchResult) plan.Done {
	c, report := msg.conn, msg.done.Report
	done := plan.Done{
		Relay: c.url, Epoch: c.epoch, Batch: msg.batch.ID, Result: msg.done.Result, Cursors: msg.done.Cursors,
		Reconciled: report.Method&session.Negent == session.Negent, Disproved: report.Disproved,
	}
	if msg.failed.Load() {
		// If an event could not be saved, the cursors say nothing about the stored events.
		done.Result, done.Cursors, done.Unsaved = plan.Failed, nil, true
		return done
	}
	done.Late = done.Result == plan.Failed && report.Late
	return done
}

// resumeEvery is the minimum time between two reports that saving works again.
const resumeEvery = time.Minute

func (l *loop) checkSaving(ctx context.Context, now time.Time) {
	nothing := l.m.ingest.savesNothing.Load()
	if nothing == l.savesNothing || !nothing && now.Sub(l.resumedAt) < resumeEvery {
		return
	}
	if l.savesNothing = nothing; !nothing {
		l.resumedAt = now
		l.step(ctx, plan.Saves{})
	}
}

func (l *loop) dial(ctx context.Context, e plan.Dial) {
	if at := l.m.health.NextAttempt(e.Relay); at.After(time.Now()) {
		// A relay that was dropped and is listed again keeps its backoff.
		l.m.cfg.Logger.Debug("attempt skipped by backoff", keyRelay, e.Relay.String(), keyBackoff, time.Until(at))
		l.m.inbox.put(planInput{plan.DialFailed{
			Relay: e.Relay, Epoch: e.Epoch, RetryAt: at,
		}})
		return
	}
	stats := l.stats[e.Relay]
	if stats == nil {
		stats = l.m.persistence.stats(e.Relay)
		l.stats[e.Relay] = stats
	}
	l.m.health.Attempt(e.Relay)
	c := newRelayConn(ctx, l.m, e.Relay, e.Epoch, stats)
	l.conns[e.Relay] = c
	l.m.wg.Go(c.run)
}

func (l *loop) hangup(u graspsync.RelayURL, epoch uint64) {
	if c := l.conn(u, epoch); c != nil {
		c.end(nil)
		delete(l.conns, u)
		l.m.health.Closed(u)
		l.m.persistence.health(u)
	}
}

const (
	settleEvery = time.Minute // between two plan.Settled
	leastJump   = time.Minute // of the wall clock
)

// settle sends a plan.Settled once per minute. Failed events do not delay it, because they are
// requested again after a restart.
func (l *loop) settle(ctx context.Context, now time.Time) {
	if l.roundAt.IsZero() {
		if !l.started || now.Sub(l.settledAt) < settleEvery {
			return
		}
		l.roundAt, l.roundRead, l.roundQueued = now, make(map[*relayConn]uint64), time.Time{}
		for _, c := range l.conns {
			l.roundRead[c] = c.read.Load()
		}
	}
	for c, n := range l.roundRead {
		if l.conns[c.url] == c && c.taken.Load() < n {
			return
		}
	}
	if l.roundQueued.IsZero() {
		l.roundQueued = time.Now()
	}
	if l.m.ingest.inflight.hasOlder(l.roundQueued) {
		return
	}
	at := l.roundAt
	l.roundAt, l.settledAt = time.Time{}, now
	l.step(ctx, plan.Settled{At: at})
}

func (l *loop) watchClock(ctx context.Context, now time.Time) {
	last := l.clockAt
	l.clockAt = now
	if last.IsZero() {
		return
	}
	if by, jumped := clockJump(now.Round(0).Sub(last.Round(0)), now.Sub(last)); jumped {
		l.m.cfg.Logger.Warn("clock changed", "change", by)
		l.roundAt = time.Time{} // the round has an old time
		l.step(ctx, plan.ClockJumped{By: by})
	}
}

// clockJump returns by how much more the wall clock advanced than the monotonic clock. jumped is
// false for usual corrections.
func clockJump(wall, monotonic time.Duration) (by time.Duration, jumped bool) {
	by = (wall - monotonic).Round(time.Second)
	return by, by > leastJump || by < -leastJump
}

func (l *loop) forget(u graspsync.RelayURL) {
	delete(l.stats, u)
	l.m.health.Forget(u)
	l.m.persistence.forget(u)
}

func (l *loop) saveState(ctx context.Context) {
	p := l.m.persistence
	if p.cfg.State == nil {
		return
	}
	for u := range l.conns {
		p.relay(u, l.stats[u])
	}
	if p.busy {
		return
	}
	p.busy = true
	p.capture(l.plan, saveMark)
	l.m.wg.Go(func() {
		l.m.inbox.put(exportResult{p.export(ctx)})
	})
}

func (msg exportResult) handle(_ context.Context, l *loop) {
	l.m.persistence.busy = false
	if msg.err == nil {
		l.m.persistence.confirmed()
	}
}

func (l *loop) saveAll() {
	p := l.m.persistence
	if p.cfg.State == nil {
		return
	}
	for u, s := range l.stats {
		p.relay(u, s)
	}
	p.capture(l.plan, time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), lastSaveLimit)
	defer cancel()
	if p.export(ctx) == nil {
		p.confirmed()
	}
}

// mailbox is an unbounded queue whose senders never block. Its owner limits the number of messages
// by limiting the work that sends them.
type mailbox[T any] struct {
	mu    sync.Mutex
	items []T // guarded by mu
	wake  chan struct{}
}

func newMailbox[T any]() mailbox[T] { return mailbox[T]{wake: make(chan struct{}, 1)} }

func (b *mailbox[T]) put(item T) int {
	b.mu.Lock()
	b.items = append(b.items, item)
	n := len(b.items)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return n
}

func (b *mailbox[T]) take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = nil
	return items
}

type loopMessage interface {
	handle(ctx context.Context, l *loop)
}

type (
	connOpened struct {
		conn   *relayConn
		limits relaylimits.Requests
	}
	// connEnd: a connection has ended, or an attempt has failed.
	connEnd struct {
		conn    *relayConn
		err     error
		cursors map[plan.BatchID][]plan.Cursor
		aliveAt time.Time
	}
	// batchResult: all requests of a batch have ended and all its events are settled.
	batchResult struct {
		conn *relayConn
		*relayBatch
		done session.Done
	}
)

type (
	planInput  struct{ in plan.Input }
	scanResult struct{ err error }
	// exportResult: the rejections on which the confirmed state depends are durable, unless err is
	// set.
	exportResult struct{ err error }
)

func (msg planInput) handle(ctx context.Context, l *loop) { l.step(ctx, msg.in) }
