package sync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// OwnFeedStatus is the state of the subscription to [Config.OwnRelay].
type OwnFeedStatus struct {
	URL       graspsync.RelayURL `json:"url"`
	Connected bool               `json:"connected"`
	Complete  bool               `json:"complete"` // all stored events were read once
	Events    uint64             `json:"events"`   // received, copies included
	Readings  uint64             `json:"readings"` // completed
	Losses    uint64             `json:"losses"`   // lost connections
	LastError string             `json:"last_error"`
}

const (
	ownBackoff    = time.Second // after the first failure, doubling
	ownBackoffMax = time.Minute
	ownHeld       = time.Minute // a longer connection resets the backoff
	ownRecheck    = 15 * time.Minute
)

// ownFeed reads the stored events of our own relay and follows the new ones, if our own relay is a
// separate process. The subscription opens before the first reading, so no event is lost between
// them. Later readings reach back to find events that were stored while the connection was down, or
// missed by a subscription that ended silently.
type ownFeed struct {
	cfg       *Config // read-only
	telemetry *telemetry
	readable  <-chan struct{} // closed when the Store was read
	// stored is called with an event of our own relay. live means that it was not stored before.
	stored func(ev graspsync.Event, live bool)

	// Fields of run.
	past  *plan.Query     // the first reading, which has no since; nil: all events were read once
	since nostr.Timestamp // also read events since then; 0: all were read

	mu sync.Mutex
	s  *OwnFeedStatus // guarded by mu; nil: there is none
}

func (o *ownFeed) update(change func(s *OwnFeedStatus)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.s == nil {
		o.s = &OwnFeedStatus{}
	}
	change(o.s)
}

func (o *ownFeed) status() *OwnFeedStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.s == nil {
		return nil
	}
	s := *o.s
	return &s
}

// ownKinds are the kinds of the feed: announcements, root events, deletions and requests to vanish.
// States (30618) cannot change a filter, and updates of pull requests (1619) tag an event that is
// already followed.
func ownKinds() []int { return []int{30617, 1617, 1618, 1621, 5, 62} }

// run follows [Config.OwnRelay] until ctx ends. It returns immediately if there is none.
func (o *ownFeed) run(ctx context.Context) {
	if o.cfg.OwnRelay.IsZero() {
		return
	}
	o.update(func(s *OwnFeedStatus) { s.URL = o.cfg.OwnRelay })
	select { // wait for the first scan, which would miss earlier events
	case <-o.readable:
	case <-ctx.Done():
		return
	}
	o.past = &plan.Query{Filter: nostr.Filter{Kinds: ownKinds()}, NoNegentropy: true}
	var failures backoff.Streak
	for {
		began := time.Now()
		err := o.converse(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= ownHeld {
			failures = backoff.Streak{}
		}
		failures.Again(time.Now(), ownBackoff, ownBackoffMax)
		o.lost(err, time.Until(failures.Until))
		select {
		case <-time.After(time.Until(failures.Until)):
		case <-ctx.Done():
			return
		}
	}
}

func (o *ownFeed) lost(err error, wait time.Duration) {
	text := graspsync.Printable(err.Error())
	o.update(func(s *OwnFeedStatus) {
		s.Losses++
		s.Connected, s.LastError = false, text
	})
	o.cfg.Logger.Warn("own feed ended", keyRelay, o.cfg.OwnRelay.String(), keyErr, text, keyBackoff, wait)
}

func (o *ownFeed) converse(ctx context.Context) error {
	c, err := o.dial(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	own := &ownConn{ownFeed: o, conn: c}
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		stop()
		_ = own.close() // the connection has ended or is not needed
		wg.Wait()
	}()
	messages, failed := make(chan wire.Message), make(chan error, 1)
	wg.Go(func() { failed <- own.receiveAll(ctx, messages) })
	if p := o.telemetry.contain(o.cfg.OwnRelay, func() {
		defer own.ended()
		err = own.converse(ctx, messages, failed)
	}); p != nil {
		return p
	}
	return err
}

func (o *ownFeed) dial(ctx context.Context) (c Conn, err error) {
	defer o.telemetry.recovered(&err, whoseTransport)
	ctx, stop := context.WithTimeout(ctx, connectTimeout)
	defer stop()
	c, err = o.cfg.OwnTransport.Dial(ctx, o.cfg.OwnRelay)
	if err == nil && c == nil {
		err = errNoConn
	}
	return c, err
}

// readSince schedules a reading from shortly before t on.
func (o *ownFeed) readSince(t time.Time) {
	if since := max(1, nostr.Timestamp(t.Add(-overlap).Unix())); o.since == 0 || since < o.since {
		o.since = since
	}
}

// ownConn is a connection to our own relay. It belongs to the goroutine of [ownFeed.run], except
// receiveAll, which has its own goroutine. A panic of the Transport becomes an error.
type ownConn struct {
	*ownFeed
	conn    Conn
	session *session.Session
	alive   time.Time    // of the last message, zero before
	reading plan.BatchID // the current or last reading
	checkAt time.Time    // the next reading, zero during one
}

// ended stores the progress for the next connection.
func (o *ownConn) ended() {
	if o.session != nil {
		o.keep(o.session.Cursors()[o.reading])
	}
	if !o.alive.IsZero() {
		o.readSince(o.alive)
	}
}

// keep stores the progress of a reading.
func (o *ownConn) keep(at []plan.Cursor) {
	if len(at) > 0 && o.past != nil { // its query is the last
		switch c := at[len(at)-1]; c {
		case plan.CursorDone:
			o.past = nil
		case plan.CursorStart:
		default:
			o.past.Until = int64(c)
		}
	}
}

// receiveAll passes on messages until the connection ends.
func (o *ownConn) receiveAll(ctx context.Context, to chan<- wire.Message) (err error) {
	defer o.telemetry.recovered(&err, whoseTransport)
	for {
		msg, err := o.conn.Receive(ctx)
		if err != nil {
			return err
		}
		select {
		case to <- msg:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *ownConn) send(ctx context.Context, req wire.Request) (err error) {
	defer o.telemetry.recovered(&err, whoseTransport)
	return o.conn.Send(ctx, req)
}

func (o *ownConn) close() (err error) {
	defer o.telemetry.recovered(&err, whoseTransport)
	return o.conn.Close()
}

func (o *ownConn) converse(ctx context.Context, messages <-chan wire.Message, failed <-chan error) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	info := o.conn.Info()
	cfg := sessionConfig(o.cfg, &relayStats{}, relaylimits.Facts{}.Effective(relaylimits.Declared(info, usual), time.Now()), info)
	cfg.FirstAnswer, cfg.Auth = cfg.IdleTimeout, false
	o.session = session.New(cfg)
	actions := o.session.Follow(time.Now(), 1, []nostr.Filter{filters.Live(nostr.Filter{Kinds: ownKinds()})})
	actions = append(actions, o.read()...)
	for {
		if err := o.do(ctx, actions); err != nil {
			return err
		}
		at, ok := o.session.NextWake()
		if !o.checkAt.IsZero() && (!ok || o.checkAt.Before(at)) {
			at, ok = o.checkAt, true
		}
		var due <-chan time.Time
		if ok {
			timer.Reset(time.Until(at))
			due = timer.C
		}
		select {
		case msg := <-messages:
			if o.alive.IsZero() {
				o.update(func(s *OwnFeedStatus) { s.Connected = true })
			}
			o.alive, actions = time.Now(), nil
			if msg.Type != wire.TypeEvent || !msg.Event.IsZero() {
				actions = o.session.Receive(o.alive, msg)
			}
		case <-due:
			actions = o.session.Tick(time.Now())
			if !o.checkAt.IsZero() && !time.Now().Before(o.checkAt) {
				o.readSince(time.Now().Add(-ownRecheck))
				actions = append(actions, o.read()...)
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// read starts a reading.
func (o *ownConn) read() []session.Action {
	o.reading++
	o.checkAt = time.Time{}
	b := plan.Batch{ID: o.reading, Kind: plan.Recent, Deadline: time.Now().Add(o.cfg.constants.BatchTimeout)}
	if o.since > 0 {
		f := filters.Between(nostr.Filter{Kinds: ownKinds()}, &o.since, nil, 0)
		b.Queries = append(b.Queries, plan.Query{Filter: f, NoNegentropy: true})
	}
	if o.past != nil {
		b.Queries = append(b.Queries, *o.past)
	}
	return o.session.Fetch(time.Now(), b)
}

// do carries out actions of the session. The loss of the subscription and a failed reading end the
// connection.
func (o *ownConn) do(ctx context.Context, actions []session.Action) error {
	for _, a := range actions {
		switch a := a.(type) {
		case session.Send:
			if err := o.send(ctx, a.Request); err != nil {
				return fmt.Errorf("sending: %w", err)
			}
		case session.Deliver:
			o.deliver(a)
		case session.Done:
			if a.Result > plan.Gaps {
				o.keep(a.Cursors)
				return fmt.Errorf("reading the own relay: %s", a.Report.Err)
			}
			o.wasRead(a.Report)
		case session.LiveClosed:
			return fmt.Errorf("own relay ended a subscription: %s", a.Reason)
		case session.Hangup:
			return errors.New(a.Reason)
		}
	}
	return nil
}

// deliver passes on an event. One with a wrong id is dropped, and the rest of its page is used.
func (o *ownConn) deliver(a session.Deliver) {
	if a.Event.CheckID() {
		o.update(func(s *OwnFeedStatus) { s.Events++ })
		o.stored(a.Event, a.Batch == 0)
		return
	}
	o.telemetry.drop("own_feed_ids", 1)
	if o.telemetry.mayLog(o.cfg.OwnRelay, classHostile) {
		o.cfg.Logger.Warn("own relay sent an event with a wrong id", keyRelay, o.cfg.OwnRelay.String(), keyEvent, a.Event.ID)
	}
}

func (o *ownConn) wasRead(r session.Report) {
	o.past, o.since, o.checkAt = nil, 0, time.Now().Add(ownRecheck)
	o.update(func(s *OwnFeedStatus) {
		s.Readings++
		s.Complete, s.LastError = true, ""
	})
	o.cfg.Logger.Debug("own relay read", keyRelay, o.cfg.OwnRelay.String(), "events", r.Events)
	if r.Seconds > 0 {
		o.telemetry.drop("own_feed_seconds", r.Seconds)
		o.cfg.Logger.Warn("own relay has more events in a second than fit into a page", keyRelay, o.cfg.OwnRelay.String(), "full_seconds", r.Seconds)
	}
}
