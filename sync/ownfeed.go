package sync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/wire"
)

const (
	ownStart      = 30 * time.Second // until EOSE
	ownBackoff    = time.Second      // after the first failure, doubling
	ownBackoffMax = time.Minute
	ownRecheck    = 15 * time.Minute // between two readings, because a subscription may end silently
)

// ownFeed follows the events that our own relay stores, if it is a separate process. Events that the
// subscription missed are read from the Store.
type ownFeed struct {
	m *SyncManager

	readAt    time.Time   // of run and read: start of the last complete reading
	connected atomic.Bool // and all earlier events were read
}

func (o *ownFeed) run(ctx context.Context) {
	u := o.m.cfg.OwnRelay
	if u.IsZero() {
		return
	}
	o.readAt = time.Now()
	select { // wait for the first scan, which would miss earlier events
	case <-o.m.ready:
	case <-ctx.Done():
		return
	}
	for failures := 0; ; {
		began := time.Now()
		err := o.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if failures++; time.Since(began) >= ownBackoffMax {
			failures = 1
		}
		wait, text := backoff.Doubled(ownBackoff, ownBackoffMax, failures), graspsync.Printable(err.Error())
		o.connected.Store(false)
		o.m.cfg.Logger.Warn("own feed ended", keyRelay, u.String(), keyErr, text, keyBackoff, wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// follow subscribes to the relay until an error. A panic of the Transport becomes an error.
func (o *ownFeed) follow(ctx context.Context) (err error) {
	defer o.m.telemetry.recovered(&err, whoseTransport)
	var reading sync.WaitGroup
	defer reading.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dialing, stop := context.WithTimeout(ctx, connectTimeout)
	conn, err := o.m.cfg.OwnTransport.Dial(dialing, o.m.cfg.OwnRelay)
	stop()
	if err == nil && conn == nil {
		err = errNoConn
	}
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	hangup := func() { _ = conn.Close() } // the connection has ended or is not needed
	defer hangup()
	starting := time.AfterFunc(ownStart, hangup)
	defer starting.Stop()
	// Other events change no filter.
	kinds := []int{30617, 1617, 1618, 1621, 5, 62}
	err = conn.Send(ctx, wire.Request{Type: wire.TypeReq, Sub: "own", Filters: []nostr.Filter{filters.Live(nostr.Filter{Kinds: kinds})}})
	if err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	for started := false; ; {
		msg, err := conn.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case msg.Type == wire.TypeEvent && !msg.Event.IsZero():
			o.deliver(msg.Event)
		case msg.Type == wire.TypeClosed:
			return fmt.Errorf("own relay ended a subscription: %s", msg.Text)
		case msg.Type == wire.TypeEOSE && !started:
			started = true
			starting.Stop()
			reading.Go(func() { cancel(o.read(ctx, kinds)) })
		}
	}
}

// read applies the events that were stored since shortly before the last reading, now and every
// ownRecheck. It returns when ctx ends or the Store fails.
func (o *ownFeed) read(ctx context.Context, kinds []int) (err error) {
	defer o.m.telemetry.recovered(&err, whoseStore)
	for {
		began, since := time.Now(), nostr.Timestamp(o.readAt.Add(-overlap).Unix())
		for ev, err := range o.m.store.Events(ctx, nostr.Filter{Kinds: kinds, Since: &since}) {
			if errors.Is(err, ErrIncomplete) {
				break
			}
			if err != nil {
				return fmt.Errorf("reading the store: %w", err)
			}
			o.m.applyStored(ev)
		}
		o.readAt = began
		o.m.telemetry.depends(whoseTransport, nil)
		o.connected.Store(true)
		select {
		case <-time.After(ownRecheck):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (o *ownFeed) deliver(ev graspsync.Event) {
	if ev.CheckID() {
		o.m.ingest.count(ev)
		o.m.applyStored(ev)
		return
	}
	o.m.telemetry.drop("own_feed_ids", 1)
	o.m.telemetry.remote(slog.LevelWarn, o.m.cfg.OwnRelay, "own relay sent an event with a wrong id", keyEvent, ev.ID)
}
