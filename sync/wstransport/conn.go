package wstransport

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// keptBuffer is the largest buffer that a connection has to itself, and keeps between
// messages.
const keptBuffer = 64 << 10

// Keys of log lines.
const (
	keyRelay = "relay"
	keyError = "error"
	keySize  = "size"
	keyStack = "stack"
)

// conn is one connection. See doc.go for how its goroutines work together.
type conn struct {
	// set by start, read-only
	t      *Transport
	relay  string
	host   string
	ws     *websocket.Conn
	raw    io.Writer // the connection beneath ws; see keepalive.go
	remote netip.Addr
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	wg     sync.WaitGroup

	want  chan struct{}     // Receive asks for a message; one slot
	got   chan wire.Message // and gets it here
	ended chan struct{}     // closed once err is set

	endOnce sync.Once
	err     error // set by end, before ended is closed

	writing chan struct{} // its one slot is held while frames are written
	out     []byte        // owned by who holds writing

	// owned by the reading goroutine
	in      []byte
	held    int64   // of the read budget
	reader  *reader // who holds it, until the message is here
	strikes strikes

	proven atomic.Bool // the connection has stood for long enough
	waits  waits       // for the read budget
	signs  *signs      // of life, from the relay
	parked atomic.Bool // the reading goroutine waits for Receive
	info   atomic.Pointer[wire.Info]
	asked  chan struct{} // closed once info is as good as it gets
	stats  counters
}

// start makes a connection of a websocket, and starts its goroutines. The
// websocket reports to s already.
func (t *Transport) start(ws *websocket.Conn, raw io.Writer, remote netip.Addr, u graspsync.URL, s *signs) *conn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &conn{
		t:       t,
		relay:   u.String(),
		host:    u.HostPort.Host,
		ws:      ws,
		raw:     raw,
		remote:  remote,
		ctx:     ctx,
		cancel:  cancel,
		want:    make(chan struct{}, 1),
		got:     make(chan wire.Message),
		ended:   make(chan struct{}),
		writing: make(chan struct{}, 1),
		asked:   make(chan struct{}),
		signs:   s,
	}
	c.goDo(c.read)
	c.goDo(c.keepAlive)
	c.goDo(func() { c.fetchInfo(ctx, u) })
	c.goDo(func() { c.proveHost(u) })
	return c
}

// provenAfter is how long a connection must stand to show that there is a relay.
const provenAfter = time.Minute

// proveHost tells the dialer that the host is a relay, once that is known.
func (c *conn) proveHost(u graspsync.URL) {
	timer := time.NewTimer(c.t.proven)
	defer timer.Stop()
	select {
	case <-timer.C:
		c.proven.Store(true)
		c.t.cfg.Dialer.Proven(u.HostPort.Host)
	case <-c.ended:
	}
}

// goDo runs f in a goroutine of the connection. A panic is a bug of ours, but
// whatever a relay did to provoke it must cost no more than this connection.
func (c *conn) goDo(f func()) {
	c.wg.Go(func() {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			c.stats.panics.Add(1)
			c.t.stats.panics.Add(1)
			_ = c.end(fmt.Errorf("internal error: %v", v)) // Receive says it
			c.t.cfg.Logger.Error("panic in relay connection", keyRelay, c.relay, keyStack, string(debug.Stack()))
		}()
		f()
	})
}

// Receive returns the next message. See [relaysync.Conn].
func (c *conn) Receive(ctx context.Context) (wire.Message, error) {
	select {
	case c.want <- struct{}{}:
	case <-c.ended:
		return wire.Message{}, c.err
	}
	select {
	case m := <-c.got:
		return m, nil
	case <-c.ended:
		return wire.Message{}, c.err
	case <-ctx.Done():
		return wire.Message{}, c.end(fmt.Errorf("receiving: %w", ctx.Err()))
	}
}

// Send writes one request. See [relaysync.Conn].
func (c *conn) Send(ctx context.Context, r wire.Request) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	frame, err := wire.Append(c.out[:0], r)
	if err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	if cap(frame) <= keptBuffer {
		c.out = frame
	}
	if most := c.maxRequest(); len(frame) > most {
		return fmt.Errorf("%w: %d bytes, the relay takes %d", relaysync.ErrMessageTooLarge, len(frame), most)
	}
	defer c.watch(ctx)()
	// No context: the library would close the connection without saying why.
	if err := c.ws.Write(context.Background(), websocket.MessageText, frame); err != nil {
		return c.end(fmt.Errorf("sending: %w", err))
	}
	return nil
}

// watch ends the connection if ctx ends, or the time for a write is over, before
// the returned function is called.
func (c *conn) watch(ctx context.Context) (stop func()) {
	late := time.AfterFunc(c.t.cfg.fixed.WriteTimeout, func() { _ = c.end(errNotRead) })
	given := context.AfterFunc(ctx, func() { _ = c.end(fmt.Errorf("sending: %w", ctx.Err())) })
	return func() {
		late.Stop()
		given()
	}
}

// acquire waits until no other frame is being written. The error is final.
func (c *conn) acquire(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return c.end(fmt.Errorf("sending: %w", ctx.Err()))
	}
	select {
	case <-c.ended:
		c.release()
		return c.err
	default:
		return nil
	}
}

func (c *conn) release() { <-c.writing }

// maxRequest is the largest request that the relay takes, as far as we know.
func (c *conn) maxRequest() int {
	if n := c.Info().MaxMessageLength; n > 0 {
		return n
	}
	return c.t.cfg.fixed.MaxRequest
}

// Info returns what the relay's NIP-11 document says, if it is here.
func (c *conn) Info() wire.Info {
	if info := c.info.Load(); info != nil {
		return *info
	}
	return wire.Info{}
}

// InfoKnown implements [relaysync.InfoAwaiter].
func (c *conn) InfoKnown() <-chan struct{} { return c.asked }

// DroppedBytes implements [relaysync.DropCounter].
func (c *conn) DroppedBytes() uint64 { return c.stats.dropped.Load() }

// RemoteAddr implements [relaysync.Addressed].
func (c *conn) RemoteAddr() netip.Addr { return c.remote }

// ReadWaited implements [relaysync.ReadWaiter].
func (c *conn) ReadWaited() time.Duration { return c.waits.sum() }

// Stats counts what this relay sent over this connection.
func (c *conn) Stats() Stats { return c.stats.read() }

// Close ends the connection and waits for its goroutines, not for the relay.
func (c *conn) Close() error {
	if c.stats.messages.Load() > 0 {
		select {
		case <-c.ended: // not by us
		default:
			c.t.cfg.Dialer.Budget().Answered(c.host)
		}
	}
	_ = c.end(errByUs) // what it returns is for Send and Receive
	c.wg.Wait()
	return nil
}

// end ends the connection because of cause, unless it has ended already, and
// returns the error that Send and Receive return from now on.
func (c *conn) end(cause error) error {
	c.endOnce.Do(func() {
		c.err = fmt.Errorf("%w: %w", relaysync.ErrClosed, inBounds(cause))
		close(c.ended)
		c.cancel()
		_ = c.ws.CloseNow() // the connection is given up; there is nothing to do about it
	})
	return c.err
}
