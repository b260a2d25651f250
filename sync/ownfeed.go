package sync

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/ownfeed"
	"github.com/graspsync/graspsync/sync/wire"
)

// OwnFeedStatus is how the subscription to [Config.OwnRelay] is doing.
type OwnFeedStatus struct {
	URL       graspsync.RelayURL `json:"url"`
	Connected bool               `json:"connected"`
	Complete  bool               `json:"complete"` // all that is stored was read once
	Events    uint64             `json:"events"`   // that came, copies included
	Readings  uint64             `json:"readings"` // that reached their end
	Losses    uint64             `json:"losses"`   // of the connection
	LastError string             `json:"last_error"`
}

// The times of the own feed.
const (
	ownBackoff    = time.Second // after a first failure, doubling
	ownBackoffMax = time.Minute
	ownHeld       = time.Minute // a connection that held so long was a good one
	ownRecheck    = 15 * time.Minute
)

// ownFeed is what is known of it. The zero value is one that is not used.
type ownFeed struct {
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

func receiveAll(ctx context.Context, c Conn, to chan<- wire.Message) error {
	for {
		msg, err := c.Receive(ctx)
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

// ownConn is owned by the goroutine of followOwn.
type ownConn struct {
	m     *SyncManager
	conn  Conn
	feed  *ownfeed.Feed
	alive time.Time // of the last message, zero before
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
				o.m.own.update(func(s *OwnFeedStatus) { s.Connected = true })
			}
			o.alive = time.Now()
			if msg.Type == wire.TypeEvent && msg.Event == nil {
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

// do does what the feed says.
func (o *ownConn) do(ctx context.Context, r ownfeed.Result) error {
	if r.Err != nil {
		return r.Err
	}
	switch {
	case r.Event == nil:
	case r.Event.CheckID():
		o.m.own.update(func(s *OwnFeedStatus) { s.Events++ })
		o.m.ownEvent(r.Event, r.Live)
	default:
		o.wrongID(r.Event)
	}
	for _, req := range r.Send {
		if err := o.conn.Send(ctx, req); err != nil {
			return fmt.Errorf("sending: %w", err)
		}
	}
	if r.Read {
		o.m.ownRead(r)
	}
	return nil
}

// wrongID leaves out an event whose id is not what we find it to be: it is that event
// which is of no use, not the page that it came in.
func (o *ownConn) wrongID(ev *nostr.Event) {
	o.m.report.drop("own_feed_ids", 1)
	if o.m.report.mayLog(o.m.cfg.OwnRelay, classHostile) {
		o.m.cfg.Logger.Warn("own relay gave an event whose id is wrong", keyRelay, o.m.cfg.OwnRelay.String(), keyEvent, ev.ID)
	}
}
