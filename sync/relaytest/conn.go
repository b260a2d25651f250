package relaytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// Why a connection ended.
var (
	errClosed = fmt.Errorf("%w by the client", relaysync.ErrClosed)
	errCut    = fmt.Errorf("%w by the relay", relaysync.ErrClosed)
	errSlow   = fmt.Errorf("%w by the relay: slow reader", relaysync.ErrClosed)
	errLarge  = fmt.Errorf("%w by the relay: message too large", relaysync.ErrClosed)
	errBusy   = fmt.Errorf("%w by the relay: too many messages", relaysync.ErrClosed)
)

// subscription is a REQ that was not closed.
type subscription struct {
	id       string
	filters  []nostr.Filter
	matchers []*matcher
	opened   time.Time
	follows  bool // gets live events
	ended    bool // EOSE was sent
	size     int  // bytes of the REQ
	asksIDs  int  // how many ids it names, -1 if a filter names none
	passes   bool // it ends with its stored events
}

// Conn is a connection to a [Relay], a [relaysync.Conn]. It has no goroutine of
// its own.
type Conn struct {
	relay *Relay
	id    int
	info  wire.Info

	done chan struct{} // closed at the end
	wake chan struct{} // one slot: look again whether there is something to receive
	room chan struct{} // one slot: look again whether something can be sent

	once   sync.Once
	cause  error // set before done is closed
	inRecv guard
	inSend guard

	// All below is guarded by relay.mu.
	closed     bool
	queue      []*answer
	unread     int // answers in queue that are not live events
	backlog    int // bytes of live events in queue
	subs       map[string]*subscription
	negs       map[string]*negSession
	usedSubs   map[string]struct{}
	usedNegs   map[string]struct{}
	linkFree   time.Time // the next message may go out
	delivered  int
	waiting    int // live events in queue
	meters     map[rate]meter
	refusedAt  time.Time // the client got the last "rate-limited"
	asking     string    // the REQ that nothing was answered to
	askedAt    time.Time
	challenges map[string]struct{} // that may be answered
	authed     bool
}

func newConn(r *Relay, id int) *Conn {
	return &Conn{
		relay:    r,
		id:       id,
		info:     r.behavior.Info,
		done:     make(chan struct{}),
		wake:     make(chan struct{}, 1),
		room:     make(chan struct{}, 1),
		subs:     make(map[string]*subscription),
		negs:     make(map[string]*negSession),
		usedSubs: make(map[string]struct{}),
		usedNegs: make(map[string]struct{}),

		meters:     make(map[rate]meter),
		challenges: make(map[string]struct{}),
	}
}

// Info returns what the relay said of itself when the connection was made.
func (c *Conn) Info() wire.Info {
	info := c.info
	info.NIPs = slices.Clone(info.NIPs)
	return info
}

// Close ends the connection. It returns nil.
func (c *Conn) Close() error {
	c.end(errClosed)
	return nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// end ends the connection once. It must not be called with relay.mu held.
func (c *Conn) end(cause error) {
	c.once.Do(func() {
		c.relay.mu.Lock()
		delete(c.relay.conns, c)
		c.closed = true
		c.queue, c.subs, c.negs = nil, nil, nil
		c.relay.mu.Unlock()
		c.cause = cause
		close(c.done)
	})
}

// ended returns why the connection ended, nil while it is open.
func (c *Conn) ended() error {
	select {
	case <-c.done:
		return c.cause
	default:
		return nil
	}
}

// stir makes blocked calls look again.
func (c *Conn) stir() {
	signal(c.wake)
	signal(c.room)
}

func signal(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// Receive returns the relay's next message.
func (c *Conn) Receive(ctx context.Context) (wire.Message, error) {
	for {
		f, err := c.receive(ctx)
		if err != nil {
			return wire.Message{}, err
		}
		if f.raw == nil {
			return f.msg, nil
		}
	}
}

// ReceiveText returns the relay's next message as the text that goes over a real
// socket. Calls of Receive and ReceiveText must not be mixed.
func (c *Conn) ReceiveText(ctx context.Context) ([]byte, error) {
	f, err := c.receive(ctx)
	if err != nil || f.raw != nil {
		return f.raw, err
	}
	return encode(f), nil
}

func (c *Conn) receive(ctx context.Context) (frame, error) {
	if !c.inRecv.enter() {
		c.violate(ViolationConcurrentUse, "Receive was called while another Receive ran", "")
	}
	defer c.inRecv.leave()
	for {
		if err := c.ended(); err != nil {
			return frame{}, fmt.Errorf("receive from %s: %w", c.relay.url, err)
		}
		if ctx.Err() != nil {
			return frame{}, c.abandon(ctx, "receive from")
		}
		f, wait, ok := c.take(time.Now())
		if ok && f.cut {
			c.end(errCut)
			continue
		}
		if ok {
			return f, nil
		}
		var timer *time.Timer
		var due <-chan time.Time
		if wait > 0 {
			timer = time.NewTimer(wait)
			due = timer.C
		}
		select {
		case <-c.wake:
		case <-due:
		case <-c.done:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// abandon ends the connection because a call was given up: the first error is
// final.
func (c *Conn) abandon(ctx context.Context, what string) error {
	err := context.Cause(ctx)
	c.end(fmt.Errorf("%w: call given up: %w", relaysync.ErrClosed, err))
	return fmt.Errorf("%s %s: %w", what, c.relay.url, err)
}

// live queues a new event for the subscriptions that match, and reports whether
// there are any. relay.mu is held.
func (c *Conn) live(rec *record) bool {
	hit := false
	if most := c.relay.behavior.MaxLive; most > 0 && c.waiting >= most && c.follows(rec) {
		c.overflow()
		return true
	}
	for _, id := range sortedKeys(c.subs) {
		s := c.subs[id]
		if !s.follows || !s.match(rec.ev) {
			continue
		}
		c.push(&answer{
			sub:    id,
			frames: c.relay.serve(id, rec),
			due:    time.Now().Add(c.relay.behavior.Latency),
			live:   rec.size,
			first:  !hit,
		})
		hit = true
	}
	return hit
}

// follows reports whether the connection is to get a new event.
func (c *Conn) follows(rec *record) bool {
	for _, s := range c.subs {
		if s.follows && s.match(rec.ev) {
			return true
		}
	}
	return false
}

// overflow drops the live events that wait, and closes all subscriptions. relay.mu is
// held.
func (c *Conn) overflow() {
	for i := 0; i < len(c.queue); {
		if c.queue[i].live == 0 {
			i++
			continue
		}
		c.unqueue(i)
	}
	text := c.relay.program().manners().overflow
	for _, id := range sortedKeys(c.subs) {
		c.say(wire.Message{Type: wire.TypeClosed, Sub: id, Text: text})
	}
	clear(c.subs)
}

func (s *subscription) match(ev *nostr.Event) bool {
	for _, m := range s.matchers {
		if m.match(ev) {
			return true
		}
	}
	return false
}

// Send hands the relay a message.
func (c *Conn) Send(ctx context.Context, req wire.Request) error {
	size := requestSize(req)
	if most := c.info.MaxMessageLength; most > 0 && size > most && c.ended() == nil {
		return fmt.Errorf("send %d bytes to %s: %w", size, c.relay.url, relaysync.ErrMessageTooLarge)
	}
	return c.send(ctx, copyRequest(req), size)
}

func (c *Conn) send(ctx context.Context, req wire.Request, size int) error {
	if !c.inSend.enter() {
		c.violate(ViolationConcurrentUse, "Send was called while another Send ran", "")
	}
	defer c.inSend.leave()
	for {
		if err := c.ended(); err != nil {
			return fmt.Errorf("send to %s: %w", c.relay.url, err)
		}
		if ctx.Err() != nil {
			return c.abandon(ctx, "send to")
		}
		if c.writable() {
			break
		}
		select {
		case <-c.room:
		case <-c.done:
		case <-ctx.Done():
		}
	}
	if err := c.handle(req, size); err != nil {
		// The bytes left us; that the relay did not like them shows later.
		c.end(err)
	}
	c.stir()
	return nil
}

func (c *Conn) writable() bool {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	return !c.relay.behavior.StopReading && c.unread < maxUnread
}
