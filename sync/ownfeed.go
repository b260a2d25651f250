package sync

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/ownfeed"
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

type ownFeed struct {
	cfg       *Config // read-only
	telemetry *telemetry
	readable  <-chan struct{} // closed when the Store was read
	// stored is called with an event of our own relay. live means that it was not stored before.
	stored func(ev graspsync.Event, live bool)

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
	f := ownfeed.New(ownfeed.Config{
		Overlap: overlap, Recheck: ownRecheck, Idle: idleTimeout, Total: totalTimeout,
		PageLimit: o.cfg.constants.PageLimit, MaxPage: maxPage,
	})
	var failures backoff.Streak
	for {
		began := time.Now()
		err := o.converse(ctx, f)
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

func (o *ownFeed) converse(ctx context.Context, f *ownfeed.Feed) error {
	c, err := o.dial(ctx)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	own := &ownConn{own: o, conn: c, feed: f}
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		stop()
		_ = own.close() // the connection has ended or is not needed
		wg.Wait()
	}()
	defer func() { f.Lost(own.alive) }()
	messages, failed := make(chan wire.Message), make(chan error, 1)
	wg.Go(func() { failed <- own.receiveAll(ctx, messages) })
	if p := o.telemetry.contain(o.cfg.OwnRelay, func() { err = own.converse(ctx, messages, failed) }); p != nil {
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

func (o *ownFeed) wasRead(r ownfeed.Result) {
	o.update(func(s *OwnFeedStatus) {
		s.Readings++
		s.Complete, s.LastError = true, ""
	})
	o.cfg.Logger.Debug("own relay read", keyRelay, o.cfg.OwnRelay.String(), "events", r.Events)
	if r.Gaps > 0 {
		o.telemetry.drop("own_feed_seconds", r.Gaps)
		o.cfg.Logger.Warn("own relay has more events in a second than fit into a page", keyRelay, o.cfg.OwnRelay.String(), "full_seconds", r.Gaps)
	}
}

// ownConn is a connection to our own relay. It belongs to the goroutine of [ownFeed.run], except
// receiveAll, which has its own goroutine. A panic of the Transport becomes an error.
type ownConn struct {
	own   *ownFeed
	conn  Conn
	feed  *ownfeed.Feed
	alive time.Time // of the last message, zero before
}

// receiveAll passes on messages until the connection ends.
func (o *ownConn) receiveAll(ctx context.Context, to chan<- wire.Message) (err error) {
	defer o.own.telemetry.recovered(&err, whoseTransport)
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
	defer o.own.telemetry.recovered(&err, whoseTransport)
	return o.conn.Send(ctx, req)
}

func (o *ownConn) close() (err error) {
	defer o.own.telemetry.recovered(&err, whoseTransport)
	return o.conn.Close()
}

func (o *ownConn) converse(ctx context.Context, messages <-chan wire.Message, failed <-chan error) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if err := o.do(ctx, o.feed.Connected(time.Now())); err != nil {
		return err
	}
	for {
		var due <-chan time.Time
		if at, ok := o.feed.NextWake(); ok {
			timer.Reset(time.Until(at))
			due = timer.C
		}
		var r ownfeed.Result
		select {
		case msg := <-messages:
			if o.alive.IsZero() {
				o.own.update(func(s *OwnFeedStatus) { s.Connected = true })
			}
			o.alive = time.Now()
			if msg.Type == wire.TypeEvent && msg.Event.IsZero() {
				continue
			}
			r = o.feed.Receive(o.alive, msg)
		case <-due:
			r = o.feed.Tick(time.Now())
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := o.do(ctx, r); err != nil {
			return err
		}
	}
}

func (o *ownConn) do(ctx context.Context, r ownfeed.Result) error {
	if r.Err != nil {
		return r.Err
	}
	switch {
	case r.Event.IsZero():
	case r.Event.CheckID():
		o.own.update(func(s *OwnFeedStatus) { s.Events++ })
		o.own.stored(r.Event, r.Live)
	default:
		o.wrongID(r.Event)
	}
	for _, req := range r.Send {
		if err := o.send(ctx, req); err != nil {
			return fmt.Errorf("sending: %w", err)
		}
	}
	if r.Read {
		o.own.wasRead(r)
	}
	return nil
}

// wrongID drops an event with a wrong id. The rest of its page is used.
func (o *ownConn) wrongID(ev graspsync.Event) {
	o.own.telemetry.drop("own_feed_ids", 1)
	if o.own.telemetry.mayLog(o.own.cfg.OwnRelay, classHostile) {
		o.own.cfg.Logger.Warn("own relay sent an event with a wrong id", keyRelay, o.own.cfg.OwnRelay.String(), keyEvent, ev.ID)
	}
}
