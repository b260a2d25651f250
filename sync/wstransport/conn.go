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

// keptBuffer is the maximum size of a buffer that a connection may use without the read budget, and
// that is kept for reuse. See [buffers].
const keptBuffer = 64 << 10

// buffers contains unused buffers. A connection has a buffer only while it reads or writes a
// message, and most connections do neither most of the time.
type buffers chan []byte

// mostBuffers is the maximum number of unused buffers.
const mostBuffers = 32

// take returns an empty buffer, or nil.
func (b buffers) take() []byte {
	select {
	case buf := <-b:
		return buf[:0]
	default:
		return nil
	}
}

// give returns a buffer for reuse.
func (b buffers) give(buf []byte) {
	if cap(buf) == 0 || cap(buf) > keptBuffer {
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

// conn is one connection. See doc.go for its goroutines.
type conn struct {
	// set by start, read-only
	t      *Transport
	relay  string
	host   string
	ws     *websocket.Conn
	raw    io.Writer // connection below ws; see beat
	remote netip.Addr
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	wg     sync.WaitGroup

	want  chan struct{}     // Receive requests a message; one slot
	got   chan wire.Message // and gets it from this channel
	ended chan struct{}     // closed once err is set

	endOnce sync.Once
	err     error // set by end, before ended is closed

	writing chan struct{} // the one slot is held while a frame is written

	known func(graspsync.EventID) bool // set before Receive is called; nil if no id is known

	// owned by the reading goroutine
	in      []byte
	slot    *limit.Slot // of the read budget, nil if none is held
	strikes strikes

	waits  waits       // for the read budget
	signs  *signs      // of life, from the relay
	pulse  *pulse      // of life, from us
	parked atomic.Bool // the reading goroutine waits for Receive
	info   atomic.Pointer[wire.Info]
	asked  chan struct{} // closed when info is final
	stats  counters
}

// provenAfter is the time after which an open connection proves that the host is a relay.
const provenAfter = time.Minute

// proveHost reports to the dialer that the host is a relay, after provenAfter.
func (c *conn) proveHost(u graspsync.URL) {
	timer := time.NewTimer(c.t.proven)
	defer timer.Stop()
	select {
	case <-timer.C:
		c.t.cfg.Dialer.Proven(u.HostPort.Host)
	case <-c.ended:
	}
}

// goDo runs f in a goroutine of the connection. A panic is a bug of ours, but a relay may be able
// to cause it, so it ends only this connection.
func (c *conn) goDo(f func()) {
	c.wg.Go(func() { c.contain(f) })
}

// contain runs a function and turns its panic into the end of the connection.
func (c *conn) contain(f func()) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		c.stats.panics.Add(1)
		c.t.stats.panics.Add(1)
		_ = c.end(fmt.Errorf("internal error: %v", v)) // Receive returns the error
		c.t.cfg.Logger.Error("panic in relay connection", keyRelay, c.relay, keyStack, string(debug.Stack()))
	}()
	f()
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

// Skim implements [relaysync.Skimmer].
func (c *conn) Skim(known func(graspsync.EventID) bool) { c.known = known }

// Send writes one request. See [relaysync.Conn].
func (c *conn) Send(ctx context.Context, r wire.Request) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	frame, err := wire.Append(c.t.buffers.take(), r)
	defer func() { c.t.buffers.give(frame) }()
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

// acquire waits until no other frame is being written. An error is final.
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

// maxRequest returns the maximum size of a request to the relay, as far as known.
func (c *conn) maxRequest() int {
	if n := c.Info().MaxMessageLength; n > 0 {
		return n
	}
	return c.t.cfg.fixed.MaxRequest
}

// Info returns the relay's NIP-11 document, or zero before it has arrived.
func (c *conn) Info() wire.Info {
	if info := c.info.Load(); info != nil {
		return *info
	}
	return wire.Info{}
}

// InfoKnown implements [relaysync.Conn].
func (c *conn) InfoKnown() <-chan struct{} { return c.asked }

// Traffic implements [relaysync.Conn].
func (c *conn) Traffic() relaysync.Traffic {
	return relaysync.Traffic{RemoteAddr: c.remote, DroppedBytes: c.stats.dropped.Load(), ReadWaited: c.waits.sum()}
}

// Stats returns counts of this connection.
func (c *conn) Stats() Stats { return c.stats.read() }

// Close ends the connection and waits for its goroutines, but not for the relay.
func (c *conn) Close() error {
	if c.stats.messages.Load() > 0 {
		select {
		case <-c.ended: // ended for another reason
		default:
			c.t.cfg.Dialer.Budget().Answered(c.host)
		}
	}
	_ = c.end(errByUs) // Send and Receive return the error
	c.wg.Wait()
	return nil
}

// end ends the connection because of cause, unless it has ended already. It returns the error that
// Send and Receive return from now on.
func (c *conn) end(cause error) error {
	c.endOnce.Do(func() {
		c.err = fmt.Errorf("%w: %w", relaysync.ErrClosed, inBounds(cause))
		close(c.ended)
		c.pulse.stop()
		c.cancel()
		_ = c.ws.CloseNow() // the connection is over in any case
	})
	return c.err
}

// fetchInfo is the goroutine that requests the NIP-11 document. Many relays have none, so a failure
// is not logged.
func (c *conn) fetchInfo(ctx context.Context, u graspsync.URL) {
	defer close(c.asked)
	info, err := c.t.getInfo(ctx, u)
	if err != nil {
		c.t.cfg.Logger.Debug("no NIP-11 document", keyRelay, c.relay, keyError, inBounds(err))
		return
	}
	c.info.Store(&info)
}

const (
	firstBuffer = 4 << 10
	// chunk is the part of a message that counts as a sign of life.
	chunk = 16 << 10
	// maxMalformedBytes is the maximum number of bytes of consecutive malformed messages.
	maxMalformedBytes = 8 << 20
	// unknownEvery is the interval at which one message with an unknown label is not counted as
	// malformed, because newer relays may send new messages.
	unknownEvery = time.Second
)

// read is the goroutine that reads. It passes one message to Receive per request, and waits between
// requests.
func (c *conn) read() {
	defer c.giveBack(0)
	asked := false
	for {
		// No context, because it would cost an allocation per part of a message. The end of the
		// connection closes the websocket.
		_, r, err := c.ws.Reader(context.Background())
		if err != nil {
			_ = c.end(readError(err)) // Receive returns the error
			return
		}
		c.signs.heard.Add(1)
		c.signs.framing.message()
		if !asked && !c.park() {
			return
		}
		asked = true
		c.giveBack(0) // Receive was called again, so the last message is processed
		m, ok, err := c.message(r)
		if err != nil {
			_ = c.end(err) // Receive returns the error
			return
		}
		if !ok {
			continue
		}
		select {
		case c.got <- m:
			asked = false
		case <-c.ended:
			return
		}
	}
}

// park waits until Receive requests a message. It returns false if the connection has ended.
func (c *conn) park() bool {
	select {
	case <-c.want:
		return true
	default:
	}
	// In this order, so that a goroutine that finds parked false also finds the sign of life.
	c.parked.Store(true)
	c.signs.heard.Add(1)
	defer c.parked.Store(false)
	select {
	case <-c.want:
		return true
	case <-c.ended:
		return false
	}
}

// message reads and parses one message. ok is false if it was dropped. After an error the
// connection must end.
func (c *conn) message(r io.Reader) (m wire.Message, ok bool, err error) {
	data, err := c.readAll(r)
	if err != nil {
		return m, false, readError(err)
	}
	c.stats.bytes.Add(uint64(len(data)))
	c.t.stats.bytes.Add(uint64(len(data)))
	m, err = wire.ParseNew(data, c.known)
	c.t.buffers.give(c.in)
	c.in = nil
	if err != nil {
		return m, false, c.drop(err, len(data))
	}
	c.strikes = strikes{}
	c.stats.messages.Add(1)
	c.t.stats.messages.Add(1)
	return m, true, nil
}

// readAll reads a message into the connection's buffer. The buffer grows with the received data and
// not with the announced length. Beyond keptBuffer it grows only within the read budget.
func (c *conn) readAll(r io.Reader) ([]byte, error) {
	var moving *progress
	defer func() { moving.stop() }()
	if c.in == nil {
		c.in = c.t.buffers.take()
	}
	buf := c.in[:0]
	for {
		if len(buf) == cap(buf) {
			if c.slot == nil && len(buf) >= keptBuffer {
				if err := c.reserve(); err != nil {
					return nil, err
				}
				moving = c.expectProgress()
			}
			most := keptBuffer
			if c.slot != nil {
				most = max(keptBuffer+chunk, int(c.t.cfg.fixed.ReadLimit)+1)
			}
			buf = grow(buf, min(most, max(firstBuffer, 2*len(buf))))
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), len(buf)+chunk)])
		buf = buf[:len(buf)+n]
		c.signs.framing.text(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		c.signs.heard.Add(1)
		moving.read(n)
	}
	if cap(buf) <= keptBuffer { // otherwise keep the previous buffer
		c.in = buf
	}
	c.giveBack(int64(len(buf)))
	return buf, nil
}

// grow returns buf with room for exactly size bytes, because append might add bytes that are not
// reserved.
func grow(buf []byte, size int) []byte {
	larger := make([]byte, len(buf), max(size, len(buf)+1))
	copy(larger, buf)
	return larger
}

// strikes counts malformed messages since the last valid one.
type strikes struct {
	count, bytes int
	unknown      time.Time // of the last message with an unknown label
}

// drop counts a message that could not be parsed. It returns an error if there are too many.
func (c *conn) drop(err error, size int) error {
	c.stats.dropped.Add(uint64(size))
	c.t.cfg.Logger.Debug("relay message dropped", keyRelay, c.relay, keyError, err, keySize, size)
	if errors.Is(err, wire.ErrUnknown) {
		c.stats.unknown.Add(1)
		c.t.stats.unknown.Add(1)
		now := time.Now()
		seldom := now.Sub(c.strikes.unknown) >= unknownEvery
		c.strikes.unknown = now
		if seldom {
			return nil
		}
	} else {
		c.stats.malformed.Add(1)
		c.t.stats.malformed.Add(1)
	}
	c.strikes.count++
	c.strikes.bytes += size
	if c.strikes.count >= c.t.cfg.fixed.MaxMalformed || c.strikes.bytes >= maxMalformedBytes {
		return fmt.Errorf("%w: %d in a row, the last one: %w", errMalformed, c.strikes.count, err)
	}
	return nil
}

// reserve takes a part of the read budget, and waits until one is free.
func (c *conn) reserve() error {
	// The wait counts as parked time, because pings and pongs of the relay are not read.
	c.parked.Store(true)
	c.signs.heard.Add(1)
	defer c.parked.Store(false)
	defer c.waits.during()()
	slot, err := c.t.reading.Acquire(c.ctx, limit.Stranger{ID: c.host}, c.t.cfg.fixed.ReadLimit)
	c.slot = slot
	return err
}

// giveBack returns all reserved bytes except keep to the read budget.
func (c *conn) giveBack(keep int64) {
	if c.slot == nil {
		return
	}
	c.slot.Shrink(keep)
	if keep == 0 {
		c.slot = nil
	}
}

func (c *conn) expectProgress() *progress {
	now := time.Now()
	p := &progress{c: c, slot: c.slot, began: now, last: now}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(p.every(), p.look)
	return p
}

// beat writes a ping or a pong. An error is final.
func (c *conn) beat(ping bool) error {
	frame := pongFrame
	if ping {
		frame = pingFrame
	}
	ctx := context.Background()
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	defer c.watch(ctx)()
	if _, err := io.WriteString(c.raw, frame); err != nil {
		return c.end(fmt.Errorf("sending a ping: %w", err))
	}
	return nil
}

const (
	// maxEmpty is the maximum number of received bytes without content: frames without payload, or
	// compressed blocks without text. The websocket library skips them without limit and does not
	// report them.
	maxEmpty = 128 << 10
	// perMessage is the overhead of frames and compression for a short message, and perControl the
	// size of the largest ping.
	perMessage, perControl = 64, 2 + 125
)

// framing counts the bytes below the websocket library, and fails if too many of them have no
// content. The goroutine that reads owns it.
type framing struct {
	io.ReadWriteCloser
	empty int
}

// Read implements [io.Reader].
func (f *framing) Read(p []byte) (int, error) {
	n, err := f.ReadWriteCloser.Read(p)
	if f.empty += n; f.empty > maxEmpty {
		return 0, errEmpty
	}
	return n, err
}

// message records the beginning of a message.
func (f *framing) message() { f.came(perMessage) }

// text records received content. Incompressible text has additional frames and blocks.
func (f *framing) text(n int) { f.came(2 * n) }

// control records a ping or pong.
func (f *framing) control() { f.came(perControl) }

func (f *framing) came(n int) { f.empty = max(0, f.empty-n) }
