package sync

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// relayConn is one connection or connection attempt. Its goroutine owns the session.
type relayConn struct {
	m     *SyncManager
	url   graspsync.RelayURL
	epoch uint64
	stats *relayStats

	mailbox mailbox[connMessage]
	read    atomic.Uint64           // messages since the connection was opened
	taken   atomic.Uint64           // handled messages
	ctx     context.Context         //nolint:containedctx // of the connection
	end     context.CancelCauseFunc // ends the connection; the first cause counts

	// owned by receive
	heardAt   time.Time // the last message, or the start of the connection
	readingAt time.Time // start of the last read
	lostAt    time.Time

	// owned by the goroutine
	conn        Conn
	session     *session.Session
	unreadTime  time.Duration // time lost by our Store or by a relay that does not read, not yet added to the deadlines
	waited      time.Duration // part of Traffic.ReadWaited that was added to the deadlines
	batches     map[plan.BatchID]*relayBatch
	seed        maphash.Seed // of seen
	seen        []uint64     // hashes of received events
	dropped     uint64       // part of Traffic.DroppedBytes that was charged
	claimRoom   int          // ids for which the connection holds room in fetchClaims
	live        *relayBatch  // of live events; nothing waits for it
	lostByRelay bool         // the relay or the network ended the connection

	info     wire.Info
	limits   relaylimits.Limits // of requests
	excluded int                // number of values that requests omit

	// owned by the loop
	connected bool
}

func newRelayConn(ctx context.Context, m *SyncManager, u graspsync.RelayURL, epoch uint64, stats *relayStats) *relayConn {
	c := &relayConn{
		m: m, url: u, epoch: epoch, stats: stats,
		mailbox: newMailbox[connMessage](),
		batches: make(map[plan.BatchID]*relayBatch),
		live:    newRelayBatch(plan.Batch{}, time.Now()),
	}
	c.ctx, c.end = context.WithCancelCause(ctx)
	return c
}

func (c *relayConn) run() {
	defer c.end(nil)
	if err := c.open(); err != nil {
		c.m.inbox.put(connEnd{conn: c, err: err})
		return
	}
	frames, failed := make(chan wire.Message), make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		if p := c.contain(func() { err = c.receive(frames) }); p != nil {
			err = p
		}
		c.lostAt = time.Now()
		failed <- err
	})
	if err := c.contain(func() { c.converse(frames, failed) }); err != nil {
		c.end(err)
	}
	c.holdClaimRoom(0)
	c.learnFromLoss()
	c.close()
	wg.Wait()
	c.report()
}

func (c *relayConn) open() error {
	if err := c.m.persistence.beforeDial(c.ctx, c.url); err != nil {
		return err
	}
	dialing, stop := context.WithTimeout(c.ctx, connectTimeout)
	defer stop()
	var err error
	if p := c.contain(func() { c.conn, err = c.m.transport.Dial(dialing, c.url) }); p != nil {
		return p
	}
	if err == nil && c.conn == nil {
		err = errNoConn
	}
	if err != nil {
		return err
	}
	c.heardAt = time.Now()
	if err = c.contain(c.begin); err != nil {
		c.close()
	}
	return err
}

func (c *relayConn) begin() {
	c.awaitInfo()
	c.info = c.conn.Info()
	c.updateLimits(time.Now())
	limits := c.limits
	if s, ok := c.conn.(Skimmer); ok {
		s.Skim(c.m.ingest.isProcessed)
	}
	c.session = session.New(sessionConfig(c.m.cfg, c.stats, limits, c.info))
	c.m.inbox.put(connOpened{conn: c, limits: limits.Requests})
}

// infoWait is the maximum wait for the NIP-11 document, whose limits apply to the first requests.
const infoWait = 2 * time.Second

func (c *relayConn) awaitInfo() {
	timer := time.NewTimer(infoWait)
	defer timer.Stop()
	select {
	case <-c.conn.InfoKnown():
	case <-timer.C:
	case <-c.ctx.Done():
	}
}

func (c *relayConn) close() {
	_ = c.contain(func() { // the connection has ended, so the error does not matter
		if err := c.conn.Close(); err != nil {
			c.m.cfg.Logger.Debug("closing a connection failed", keyRelay, c.url.String(), keyErr, err)
		}
	})
}

var errNoConn = errors.New("the Transport gave no connection")

// receive hands each message over before it reads the next but one, so little is read ahead.
func (c *relayConn) receive(frames chan<- wire.Message) error {
	for {
		c.readingAt = time.Now()
		msg, err := c.conn.Receive(c.ctx)
		if err != nil {
			return err
		}
		c.heardAt = time.Now()
		if msg.Type == wire.TypeEvent && msg.Event.IsZero() {
			continue
		}
		c.read.Add(1)
		select {
		case frames <- msg:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

func (c *relayConn) converse(frames <-chan wire.Message, failed <-chan error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for c.ctx.Err() == nil {
		var due <-chan time.Time
		if at, ok := c.session.NextWake(); ok {
			timer.Reset(time.Until(at))
			due = timer.C
		}
		select {
		case msg := <-frames:
			c.onMessage(msg)
		case <-c.mailbox.wake:
			for _, msg := range c.mailbox.take() {
				c.perform(c.handle(msg, time.Now()))
			}
		case <-due:
			c.tick(frames)
		case err := <-failed: // all messages are taken
			c.lostByRelay = c.ctx.Err() == nil
			c.end(err)
		case <-c.ctx.Done():
		}
	}
}

// tick runs the timers of the session, after a waiting message.
func (c *relayConn) tick(frames <-chan wire.Message) {
	select {
	case msg := <-frames:
		c.onMessage(msg)
	default:
	}
	c.extendDeadlines()
	c.perform(c.session.Tick(time.Now()))
}

func (c *relayConn) onMessage(msg wire.Message) {
	defer c.taken.Add(1) // it has entered the pipeline
	c.stats.bytes.Add(uint64(msg.Size))
	c.stats.messages.Add(1)
	actions := c.session.Receive(time.Now(), msg)
	c.charge(msg, actions)
	c.perform(actions)
	c.extendDeadlines()
}

// leastExtension is the minimum extension of a deadline, because answers have seconds.
const leastExtension = 10 * time.Millisecond

// extendDeadlines extends the deadlines of the relay by unreadTime.
func (c *relayConn) extendDeadlines() {
	sum := c.conn.Traffic().ReadWaited
	c.unreadTime += sum - c.waited
	c.waited = sum
	if c.unreadTime >= leastExtension {
		c.session.ExtendDeadlines(c.unreadTime)
		c.unreadTime = 0
	}
}

func (c *relayConn) perform(actions []session.Action) {
	for len(actions) > 0 && c.ctx.Err() == nil {
		a := actions[0]
		actions = actions[1:]
		switch a := a.(type) {
		case session.Send:
			start := time.Now()
			actions = append(actions, c.send(a.Request)...)
			// The relay's time to answer begins when it has read the request.
			c.unreadTime += time.Since(start)
			c.extendDeadlines()
		case session.Deliver:
			c.deliver(a)
		case session.LoadSet:
			c.loadSet(a)
		case session.Missing:
			c.missing(a)
		case session.Done:
			c.done(a)
		case session.LiveClosed:
			c.m.telemetry.remote(slog.LevelDebug, c.url, "live subscription refused", keyReason, graspsync.Printable(a.Reason))
			if a.Why != wire.RefusalOther {
				c.stats.failed(graspsync.Printable(a.Reason))
			}
			closed := plan.LiveClosed{Relay: c.url, Epoch: c.epoch, Live: a.Live, Why: a.Why}
			if a.OpenAt != 0 {
				closed.Stood = time.Since(time.Unix(a.OpenAt, 0))
			}
			c.m.inbox.put(planInput{closed})
		case session.RateLimited:
			c.stats.with(func() { c.stats.cooling = session.Cooling{Until: a.Until, For: a.For} })
			c.m.telemetry.remote(slog.LevelInfo, c.url, "relay limit reached", keyReason, graspsync.Printable(a.Reason))
			c.m.inbox.put(planInput{plan.RateLimited{Relay: c.url, Epoch: c.epoch, Until: a.Until}})
		case session.Learned:
			c.learn(a)
		case session.ExcludeValue:
			c.excludeValue(a.Value)
		case session.Authenticate:
			c.authenticate(a)
		case session.Notice:
			c.m.telemetry.remote(slog.LevelInfo, c.url, "relay notice", keyReason, graspsync.Printable(a.Text))
		case session.Strike:
			c.strike(a)
		case session.Hangup:
			c.end(fmt.Errorf("%w: %s", errHung, a.Reason))
		}
	}
	c.holdClaimRoom(c.session.ReservedIDs())
}

func (c *relayConn) deliver(a session.Deliver) {
	src, batch, gap := graspsync.Source{Relay: c.url, Kind: graspsync.Live}, c.live, a.Gap
	if a.Batch != 0 {
		b, ok := c.batches[a.Batch]
		if !ok {
			return
		}
		batch, src.Kind = b, graspsync.CatchUp
		switch a.Kind {
		case plan.DailyHistory:
			src.Kind = graspsync.Daily
		case plan.Audit: // reconciliation should have found it
			src.Kind, gap = graspsync.Daily, true
		}
	}
	c.stats.events.Add(1)
	start := time.Now()
	j := &job{incoming: graspsync.Incoming{Event: a.Event, Source: src}, gap: gap, size: int64(a.Size), from: c, batches: []*relayBatch{batch}}
	_ = c.m.ingest.submit(c.ctx, j, a.Known) // the only error is that of ctx
	c.unreadTime += time.Since(start)
}

// loadSet and missing query the Store on their own goroutine.
func (c *relayConn) loadSet(a session.LoadSet) {
	c.ask(func(ctx context.Context) connMessage {
		ctx, cancel := context.WithTimeout(ctx, c.m.cfg.constants.StoreTimeout)
		defer cancel()
		set, err := c.m.sets.load(ctx, a.Filter)
		if err != nil {
			c.m.cfg.Logger.Warn("reading stored ids for reconciliation failed", keyRelay, c.url.String(), keyErr, err)
		}
		return connMessage{action: a, set: set, err: err}
	})
}

// holdClaimRoom adjusts the room for claimed ids to the number that the session needs.
func (c *relayConn) holdClaimRoom(n int) {
	c.m.ingest.inflight.claims.giveRoom(c.claimRoom - n)
	c.claimRoom = n
}

func (c *relayConn) missing(a session.Missing) {
	b, ok := c.batches[a.Batch]
	if !ok {
		return
	}
	c.ask(func(ctx context.Context) connMessage {
		free, busy, err := c.divide(ctx, a, b)
		return connMessage{action: a, free: free, busy: busy, err: err}
	})
}

// divide claims ids of missing events (free), or returns that another relay is asked for them (busy).
// If all ids are busy and a.More is false, it waits.
func (c *relayConn) divide(ctx context.Context, a session.Missing, b *relayBatch) (free, busy []graspsync.EventID, err error) {
	g, ids := c.m.ingest, a.IDs
	for {
		if ids, err = g.needed(ctx, ids); err != nil {
			return nil, nil, err
		}
		ids = slices.DeleteFunc(ids, func(id graspsync.EventID) bool { return c.stats.badSig(id) != "" })
		if free, busy = g.inflight.claims.take(ids, b, time.Now()); len(free) > 0 || len(busy) == 0 || a.More {
			return free, busy, nil
		}
		if err = g.inflight.claims.wait(ctx, busy[len(busy)-1], b); err != nil {
			return nil, nil, err
		}
	}
}

func (c *relayConn) ask(work func(context.Context) connMessage) {
	ctx := c.ctx
	c.m.wg.Go(func() {
		if err := c.contain(func() { c.mailbox.put(work(ctx)) }); err != nil {
			c.end(err)
		}
	})
}

func (c *relayConn) authenticate(a session.Authenticate) {
	c.ask(func(ctx context.Context) connMessage {
		ev, err := signAuth(ctx, c.m.telemetry, c.m.cfg.Signer, c.url, a.Challenge)
		if err != nil {
			c.m.cfg.Logger.Warn("authentication failed", keyRelay, c.url.String(), keyErr, err)
		} else {
			c.m.cfg.Logger.Info("authenticating", keyRelay, c.url.String(), "pubkey", ev.PubKey)
		}
		return connMessage{action: a, event: ev, err: err}
	})
}

// connMessage is an effect of the plan, or the result of an action of the session that was performed
// on another goroutine.
type connMessage struct {
	effect plan.Effect

	action     session.Action
	set        *negentropy.Set     // of LoadSet
	free, busy []graspsync.EventID // of Missing; busy ids are requested from another relay
	event      *nostr.Event        // of Authenticate
	err        error
}

func (c *relayConn) handle(msg connMessage, now time.Time) []session.Action {
	switch e := msg.effect.(type) {
	case plan.OpenLive:
		return c.session.Follow(now, e.Live, e.Filters)
	case plan.CloseLive:
		return c.session.Unfollow(now, e.Live)
	case plan.Start:
		c.batches[e.Batch.ID] = newRelayBatch(e.Batch, now)
		c.expireLimits(now)
		return c.session.Fetch(now, e.Batch)
	case plan.Cancel:
		delete(c.batches, e.Batch)
		return c.session.Abandon(now, e.Batch)
	}
	switch a := msg.action.(type) {
	case session.LoadSet:
		n := c.m.ingest.inflight.claims.takeRoom()
		c.claimRoom += n
		c.session.SetIDRoom(n)
		return c.session.SetLoaded(now, a.Query, msg.set, msg.err)
	case session.Missing:
		return c.session.Checked(now, a.Query, msg.free, msg.busy, msg.err)
	case session.Authenticate:
		return c.session.Signed(now, msg.event, msg.err)
	case session.Strike: // a forged event
		return c.session.Forged(now, a.Reason)
	}
	return nil
}

func (c *relayConn) send(r wire.Request) []session.Action {
	size := sizeOf(r)
	err := c.conn.Send(c.ctx, r)
	switch {
	case err == nil:
	case errors.Is(err, ErrMessageTooLarge) && !errors.Is(err, ErrClosed) && r.Event == nil:
		return c.session.Unsent(time.Now(), r.Sub, size, graspsync.Printable(err.Error()))
	default:
		c.lostByRelay = c.ctx.Err() == nil
		c.end(fmt.Errorf("sending: %w", err))
	}
	return nil
}

func sizeOf(r wire.Request) int {
	n := 80 + 2*len(r.Payload) // label and id
	for _, f := range r.Filters {
		n += filters.Size(f) + 1
	}
	return n
}

// relayBatch is a batch of requests with its unsettled events. No goroutine waits for the events.
type relayBatch struct {
	batch plan.Batch
	since time.Time

	open   atomic.Int64 // events, plus one for the requests
	failed atomic.Bool  // an event could not be saved, so the batch must be repeated
	ended  func()       // set by finish

	waited time.Duration // for claims of other batches; guarded by fetchClaims.mu
}

func newRelayBatch(batch plan.Batch, now time.Time) *relayBatch {
	b := &relayBatch{batch: batch, since: now}
	b.open.Store(1)
	return b
}

// settle counts an event down. ok is false if an own failure lost the event.
func (b *relayBatch) settle(ok bool) {
	if !ok {
		b.failed.Store(true)
	}
	if b.open.Add(-1) == 0 {
		b.ended()
	}
}

// finish counts the requests down. The goroutine that settles last calls ended, which must not
// block.
func (b *relayBatch) finish(ended func()) {
	b.ended = ended
	b.settle(true)
}

// done reports the end of a batch to the loop after all its events are settled.
func (c *relayConn) done(a session.Done) {
	b, ok := c.batches[a.Batch]
	if !ok {
		return
	}
	delete(c.batches, a.Batch)
	c.m.ingest.verifySoon()
	b.finish(func() { c.m.inbox.put(batchResult{conn: c, relayBatch: b, done: a}) })
}

func (c *relayConn) gap(in graspsync.Incoming) {
	c.stats.gaps.Add(1)
	id := in.Event.ID
	if in.Source.Kind == graspsync.Daily {
		c.stats.lasting.Add(1)
		c.m.telemetry.remote(slog.LevelError, c.url, "daily pass found a missed event", keyEvent, id.String())
		return
	}
	c.m.telemetry.remote(slog.LevelInfo, c.url, "catch-up found a missed event", keyEvent, id.String())
}

func (c *relayConn) contain(f func()) error { return c.m.telemetry.contain("connection", f) }
