package sync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
// separate process. The subscription opens before the first reading. Later readings begin shortly
// before the start of the last complete one, for events that the subscription missed.
type ownFeed struct {
	cfg       *Config // read-only
	telemetry *telemetry
	readable  <-chan struct{} // closed when the Store was read
	// stored is called with an event of our own relay. live means that it was not stored before.
	stored func(ev graspsync.Event, live bool)

	// Fields of run.
	conn    Conn
	session *session.Session
	since   *nostr.Timestamp // of the next reading; nil: of all events
	batch   plan.BatchID     // the current or last reading
	readAt  time.Time        // start of the current or last reading
	checkAt time.Time        // the next reading, zero during one

	mu sync.Mutex
	s  *OwnFeedStatus // guarded by mu; nil: there is none
}

func (o *ownFeed) update(change func(s *OwnFeedStatus)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.s == nil {
		o.s = &OwnFeedStatus{URL: o.cfg.OwnRelay}
	}
	change(o.s)
}

func (o *ownFeed) status() *OwnFeedStatus {
	if o.cfg.OwnRelay.IsZero() {
		return nil
	}
	var s OwnFeedStatus
	o.update(func(now *OwnFeedStatus) { s = *now })
	return &s
}

// ownFilter matches the announcements, root events, deletions and requests to vanish. Other events
// change no filter.
func ownFilter() nostr.Filter {
	return nostr.Filter{Kinds: []int{30617, 1617, 1618, 1621, 5, 62}}
}

func (o *ownFeed) run(ctx context.Context) {
	if o.cfg.OwnRelay.IsZero() {
		return
	}
	select { // wait for the first scan, which would miss earlier events
	case <-o.readable:
	case <-ctx.Done():
		return
	}
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
		wait, text := time.Until(failures.Until), graspsync.Printable(err.Error())
		o.update(func(s *OwnFeedStatus) {
			s.Losses++
			s.Connected, s.LastError = false, text
		})
		o.cfg.Logger.Warn("own feed ended", keyRelay, o.cfg.OwnRelay.String(), keyErr, text, keyBackoff, wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// converse follows the relay until the connection ends. A panic of the Transport becomes an error.
func (o *ownFeed) converse(ctx context.Context) (err error) {
	defer o.telemetry.recovered(&err, whoseTransport)
	dialing, stop := context.WithTimeout(ctx, connectTimeout)
	o.conn, err = o.cfg.OwnTransport.Dial(dialing, o.cfg.OwnRelay)
	stop()
	if err == nil && o.conn == nil {
		err = errNoConn
	}
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		cancel()
		_ = o.conn.Close() // the connection has ended or is not needed
	}()
	messages, failed := make(chan wire.Message), make(chan error, 1)
	wg.Go(func() { failed <- o.receive(ctx, messages) })
	info := o.conn.Info()
	cfg := sessionConfig(o.cfg, &relayStats{}, relaylimits.Facts{}.Effective(relaylimits.Declared(info, usual), time.Now()), info)
	cfg.FirstAnswer, cfg.Auth = cfg.IdleTimeout, false
	o.session = session.New(cfg)
	actions := o.session.Follow(time.Now(), 1, []nostr.Filter{filters.Live(ownFilter())})
	return o.follow(ctx, append(actions, o.read(time.Now())...), messages, failed)
}

func (o *ownFeed) receive(ctx context.Context, to chan<- wire.Message) (err error) {
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

func (o *ownFeed) follow(ctx context.Context, actions []session.Action, messages <-chan wire.Message, failed <-chan error) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for _, a := range actions {
			if err := o.do(ctx, a); err != nil {
				return err
			}
		}
		actions = nil
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
			o.update(func(s *OwnFeedStatus) { s.Connected = true })
			if msg.Type != wire.TypeEvent || !msg.Event.IsZero() {
				actions = o.session.Receive(time.Now(), msg)
			}
		case <-due:
			now := time.Now()
			actions = o.session.Tick(now)
			if !o.checkAt.IsZero() && !now.Before(o.checkAt) {
				actions = append(actions, o.read(now)...)
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *ownFeed) read(now time.Time) []session.Action {
	o.batch++
	o.readAt, o.checkAt = now, time.Time{}
	f := ownFilter()
	f.Since = o.since
	return o.session.Fetch(now, plan.Batch{
		ID: o.batch, Kind: plan.Recent, Deadline: now.Add(batchTimeout),
		Queries: []plan.Query{{Filter: f, NoNegentropy: true}},
	})
}

func (o *ownFeed) do(ctx context.Context, a session.Action) error {
	switch a := a.(type) {
	case session.Send:
		if err := o.conn.Send(ctx, a.Request); err != nil {
			return fmt.Errorf("sending: %w", err)
		}
	case session.Deliver:
		o.deliver(a)
	case session.Done:
		if a.Result > plan.Gaps {
			return fmt.Errorf("reading the own relay: %s", a.Report.Err)
		}
		o.telemetry.depends(whoseTransport, nil)
		since := nostr.Timestamp(o.readAt.Add(-overlap).Unix())
		o.since, o.checkAt = &since, time.Now().Add(ownRecheck)
		o.update(func(s *OwnFeedStatus) { s.Complete, s.LastError = true, "" })
		if a.Report.Seconds > 0 {
			o.telemetry.drop("own_feed_seconds", a.Report.Seconds)
			o.cfg.Logger.Warn("own relay has more events in a second than fit into a page", keyRelay, o.cfg.OwnRelay.String(), "full_seconds", a.Report.Seconds)
		}
	case session.LiveClosed:
		return fmt.Errorf("own relay ended a subscription: %s", a.Reason)
	case session.Hangup:
		return errors.New(a.Reason)
	}
	return nil
}

func (o *ownFeed) deliver(a session.Deliver) {
	if a.Event.CheckID() {
		o.update(func(s *OwnFeedStatus) { s.Events++ })
		o.stored(a.Event, a.Batch == 0)
		return
	}
	o.telemetry.drop("own_feed_ids", 1)
	o.telemetry.remote(slog.LevelWarn, o.cfg.OwnRelay, "own relay sent an event with a wrong id", keyEvent, a.Event.ID)
}
