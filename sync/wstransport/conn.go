package wstransport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// maxUnbudgeted is the maximum size of a buffer that a connection may use without the read budget.
const maxUnbudgeted = 64 << 10

type buffers chan []byte

const maxUnusedBuffers = 32

func (b buffers) get() []byte {
	select {
	case buf := <-b:
		return buf[:0]
	default:
		return nil
	}
}

func (b buffers) put(buf []byte) {
	if cap(buf) == 0 || cap(buf) > maxUnbudgeted {
		return
	}
	select {
	case b <- buf:
	default:
	}
}

// Keys of log lines.
const (
	keyRelay = "relay"
	keyError = "error"
	keySize  = "size"
	keyStack = "stack"
)

type conn struct {
	// set by start, read-only
	t      *Transport
	relay  string
	host   string
	ws     *websocket.Conn
	raw    io.Writer // connection below ws; see sendControlFrame
	remote netip.Addr
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	wg     sync.WaitGroup

	requests chan struct{}     // Receive requests a message; one slot
	messages chan wire.Message // and gets it from this channel
	ended    chan struct{}     // closed once err is set

	endOnce sync.Once
	err     error // set by end, before ended is closed

	writing chan struct{} // the one slot is held while a frame is written

	known func(graspsync.EventID) bool // set before Receive is called; nil if no id is known

	// owned by the reading goroutine
	slot      *limit.Slot // of the read budget, nil if none is held
	malformed malformedCount

	readWait readWait
	liveness *liveness
	parked   atomic.Bool // the reading goroutine waits for Receive
	answered atomic.Bool // the relay sent a valid message
	dropped  atomic.Uint64
	info     atomic.Pointer[wire.Info]
	infoDone chan struct{} // closed when info is final
}

// goRecover runs f in a goroutine of the connection. A panic, which a relay may be able to cause,
// ends only this connection.
func (c *conn) goRecover(f func()) {
	c.wg.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				c.t.panics.Add(1)
				_ = c.end(fmt.Errorf("internal error: %v", v)) // Receive returns the error
				c.t.cfg.Logger.Error("panic in relay connection", keyRelay, c.relay, keyStack, string(debug.Stack()))
			}
		}()
		f()
	})
}

// Receive returns the next message. See [relaysync.Conn].
func (c *conn) Receive(ctx context.Context) (wire.Message, error) {
	select {
	case c.requests <- struct{}{}:
	case <-c.ended:
		return wire.Message{}, c.err
	}
	select {
	case m := <-c.messages:
		return m, nil
	case <-c.ended:
		return wire.Message{}, c.err
	case <-ctx.Done():
		return wire.Message{}, c.end(fmt.Errorf("receiving: %w", ctx.Err()))
	}
}

// Skim implements [relaysync.Skimmer].
func (c *conn) Skim(known func(graspsync.EventID) bool) { c.known = known }

// Send writes one request. See [relaysync.Conn].
func (c *conn) Send(ctx context.Context, r wire.Request) error {
	if err := c.acquireWrite(ctx); err != nil {
		return err
	}
	defer c.releaseWrite()
	frame, err := wire.Append(c.t.buffers.get(), r)
	defer func() { c.t.buffers.put(frame) }()
	if err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	if most := c.maxRequest(); len(frame) > most {
		return fmt.Errorf("%w: %d bytes, the relay takes %d", relaysync.ErrMessageTooLarge, len(frame), most)
	}
	defer c.watch(ctx)()
	// No context, because the library would close the connection without a reason.
	if err := c.ws.Write(context.Background(), websocket.MessageText, frame); err != nil {
		return c.end(fmt.Errorf("sending: %w", err))
	}
	return nil
}

// watch ends the connection if ctx ends or WriteTimeout passes before the returned function is
// called.
func (c *conn) watch(ctx context.Context) (stop func()) {
	late := time.AfterFunc(c.t.cfg.fixed.WriteTimeout, func() { _ = c.end(errNotRead) })
	given := context.AfterFunc(ctx, func() { _ = c.end(fmt.Errorf("sending: %w", ctx.Err())) })
	return func() {
		late.Stop()
		given()
	}
}

// acquireWrite waits until no other frame is being written. An error is final.
func (c *conn) acquireWrite(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return c.end(fmt.Errorf("sending: %w", ctx.Err()))
	}
	select {
	case <-c.ended:
		c.releaseWrite()
		return c.err
	default:
		return nil
	}
}

func (c *conn) releaseWrite() { <-c.writing }

func (c *conn) maxRequest() int {
	if n := c.Info().MaxMessageLength; n > 0 {
		return n
	}
	return defaultMaxRequest
}

// Info returns the relay's NIP-11 document, or zero before it has arrived.
func (c *conn) Info() wire.Info {
	if info := c.info.Load(); info != nil {
		return *info
	}
	return wire.Info{}
}

// InfoKnown implements [relaysync.Conn].
func (c *conn) InfoKnown() <-chan struct{} { return c.infoDone }

// Traffic implements [relaysync.Conn].
func (c *conn) Traffic() relaysync.Traffic {
	return relaysync.Traffic{RemoteAddr: c.remote, DroppedBytes: c.dropped.Load(), ReadWaited: c.readWait.length()}
}

// Close ends the connection and waits for its goroutines, but not for the relay.
func (c *conn) Close() error {
	if c.answered.Load() {
		select {
		case <-c.ended: // ended for another reason
		default:
			c.t.cfg.Dialer.Budget().MarkAnswered(c.host)
		}
	}
	_ = c.end(errClosedByUs) // Send and Receive return the error
	c.wg.Wait()
	return nil
}

// end ends the connection because of cause, unless it has ended already. It returns the final
// error.
func (c *conn) end(cause error) error {
	c.endOnce.Do(func() {
		c.err = fmt.Errorf("%w: %w", relaysync.ErrClosed, printable(cause))
		close(c.ended)
		c.cancel()
		_ = c.ws.CloseNow() // the connection is over in any case
	})
	return c.err
}

// fetchInfo is the goroutine that requests the NIP-11 document. Many relays have none, so a failure
// is not logged.
func (c *conn) fetchInfo(ctx context.Context, u graspsync.URL) {
	defer close(c.infoDone)
	info, err := c.t.getInfo(ctx, u)
	if err != nil {
		c.t.cfg.Logger.Debug("no NIP-11 document", keyRelay, c.relay, keyError, printable(err))
		return
	}
	c.info.Store(&info)
}

const (
	firstBuffer = 4 << 10
	// chunk is the part of a message that counts as a sign of life.
	chunk = 16 << 10
)

// read is the goroutine that reads. It passes one message to Receive per request, and waits between
// requests.
func (c *conn) read() {
	defer c.releaseReadBudget(0)
	asked := false
	for {
		// No context, because it would cost an allocation per part of a message.
		_, r, err := c.ws.Reader(context.Background())
		if err != nil {
			_ = c.end(readError(err))
			return
		}
		c.liveness.received.Add(1)
		c.liveness.emptyLimiter.addMessage()
		if !asked && !c.park() {
			return
		}
		asked = true
		c.releaseReadBudget(0) // Receive was called again, so the last message is processed
		m, ok, err := c.readMessage(r)
		if err != nil {
			_ = c.end(err)
			return
		}
		if !ok {
			continue
		}
		select {
		case c.messages <- m:
			asked = false
		case <-c.ended:
			return
		}
	}
}

// park waits until Receive requests a message. It returns false if the connection has ended.
func (c *conn) park() bool {
	select {
	case <-c.requests:
		return true
	default:
	}
	// In this order, so that a goroutine that sees parked false also sees the sign of life.
	c.parked.Store(true)
	c.liveness.received.Add(1)
	defer c.parked.Store(false)
	select {
	case <-c.requests:
		return true
	case <-c.ended:
		return false
	}
}

// readMessage reads and parses one message. ok is false if it was dropped. After an error the
// connection must end.
func (c *conn) readMessage(r io.Reader) (m wire.Message, ok bool, err error) {
	data, err := c.readAll(r)
	defer func() { c.t.buffers.put(data) }()
	if err != nil {
		return m, false, readError(err)
	}
	if m, err = wire.ParseNew(data, c.known); err != nil { // a known event is read in part
		return m, false, c.drop(err, len(data))
	}
	c.malformed = malformedCount{}
	c.answered.Store(true)
	return m, true, nil
}

// readAll reads a message into a buffer that grows with the received data, and beyond maxUnbudgeted
// only within the read budget.
func (c *conn) readAll(r io.Reader) ([]byte, error) {
	var progress *readProgress
	defer func() { progress.stop() }()
	buf := c.t.buffers.get()
	for {
		if len(buf) == cap(buf) {
			if c.slot == nil && len(buf) >= maxUnbudgeted {
				if err := c.acquireReadBudget(); err != nil {
					return nil, err
				}
				progress = c.watchProgress()
			}
			maxSize := maxUnbudgeted
			if c.slot != nil {
				maxSize = readLimit + 1
			}
			buf = grow(buf, min(maxSize, max(firstBuffer, 2*len(buf))))
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), len(buf)+chunk)])
		buf = buf[:len(buf)+n]
		c.liveness.emptyLimiter.addText(n)
		if err == io.EOF {
			c.releaseReadBudget(int64(len(buf)))
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
		c.liveness.received.Add(1)
		if err := progress.add(n); err != nil {
			return nil, err
		}
	}
}

// grow returns buf with room for exactly size bytes, because append might add bytes that are not
// reserved.
func grow(buf []byte, size int) []byte {
	larger := make([]byte, len(buf), max(size, len(buf)+1))
	copy(larger, buf)
	return larger
}

type malformedCount struct{ count, bytes int }

// drop counts a message that could not be parsed. It returns an error if there are too many.
func (c *conn) drop(err error, size int) error {
	c.dropped.Add(uint64(size))
	c.t.cfg.Logger.Debug("relay message dropped", keyRelay, c.relay, keyError, err, keySize, size)
	if !errors.Is(err, wire.ErrUnknown) {
		c.malformed.count++
	}
	c.malformed.bytes += size
	if c.malformed.count >= maxMalformed || c.malformed.bytes >= maxMalformedBytes {
		return fmt.Errorf("%w, the last one: %w", errMalformed, err)
	}
	return nil
}

func (c *conn) acquireReadBudget() error {
	// The wait counts as parked time, because pings and pongs of the relay are not read.
	c.parked.Store(true)
	c.liveness.received.Add(1)
	defer c.parked.Store(false)
	defer c.readWait.start()()
	slot, err := c.t.readBudget.Acquire(c.ctx, limit.Stranger{ID: c.host}, readLimit)
	c.slot = slot
	return err
}

// releaseReadBudget returns all reserved bytes except keep to the read budget.
func (c *conn) releaseReadBudget(keep int64) {
	if c.slot == nil {
		return
	}
	c.slot.Shrink(keep)
	if keep == 0 {
		c.slot = nil
	}
}

// sendControlFrame writes a ping or a pong. An error is final.
func (c *conn) sendControlFrame(ping bool) error {
	frame := pongFrame
	if ping {
		frame = pingFrame
	}
	ctx := context.Background() // WriteTimeout ends the wait
	if err := c.acquireWrite(ctx); err != nil {
		return err
	}
	defer c.releaseWrite()
	defer c.watch(ctx)()
	if _, err := io.WriteString(c.raw, frame); err != nil {
		return c.end(fmt.Errorf("sending a ping: %w", err))
	}
	return nil
}
