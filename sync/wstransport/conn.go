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

// keptBuffer is the largest buffer that a connection has without taking it out of the read
// budget, and that is kept when it is not used any more, see [buffers].
const keptBuffer = 64 << 10

// buffers are those that nobody uses at the moment. A connection has one only while it reads a
// message or writes one: most connections do neither most of the time.
type buffers chan []byte

// mostBuffers is how many are kept for whoever is next.
const mostBuffers = 32

// take returns an empty buffer, nil if there is none.
func (b buffers) take() []byte {
	select {
	case buf := <-b:
		return buf[:0]
	default:
		return nil
	}
}

// give gives a buffer back.
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

// conn is one connection. See doc.go for how its goroutines work together.
type conn struct {
	// set by start, read-only
	t      *Transport
	relay  string
	host   string
	ws     *websocket.Conn
	raw    io.Writer // the connection beneath ws; see beat
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

	known func(graspsync.EventID) bool // set before Receive is called, nil for nothing

	// owned by the reading goroutine
	in      []byte
	slot    *limit.Slot // of the read budget, nil if none is held
	strikes strikes

	waits  waits       // for the read budget
	signs  *signs      // of life, from the relay
	pulse  *pulse      // of life, from us
	parked atomic.Bool // the reading goroutine waits for Receive
	info   atomic.Pointer[wire.Info]
	asked  chan struct{} // closed once info is as good as it gets
	stats  counters
}

// provenAfter is how long a connection must stand to show that there is a relay.
const provenAfter = time.Minute

// proveHost tells the dialer that the host is a relay, once that is known.
func (c *conn) proveHost(u graspsync.URL) {
	timer := time.NewTimer(c.t.proven)
	defer timer.Stop()
	select {
	case <-timer.C:
		c.t.cfg.Dialer.Proven(u.HostPort.Host)
	case <-c.ended:
	}
}

// goDo runs f in a goroutine of the connection. A panic is a bug of ours, but
// whatever a relay did to provoke it must cost no more than this connection.
func (c *conn) goDo(f func()) {
	c.wg.Go(func() { c.contain(f) })
}

// contain runs what a panic in ends the connection only.
func (c *conn) contain(f func()) {
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

// InfoKnown implements [relaysync.Conn].
func (c *conn) InfoKnown() <-chan struct{} { return c.asked }

// Traffic implements [relaysync.Conn].
func (c *conn) Traffic() relaysync.Traffic {
	return relaysync.Traffic{RemoteAddr: c.remote, DroppedBytes: c.stats.dropped.Load(), ReadWaited: c.waits.sum()}
}

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
		c.pulse.stop()
		c.cancel()
		_ = c.ws.CloseNow() // the connection is given up; there is nothing to do about it
	})
	return c.err
}

// fetchInfo is the goroutine that fetches the relay's NIP-11 document. Many relays
// have none, so that a failure is no news.
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
	// chunk is how much of a message must arrive to count as a sign of life.
	chunk = 16 << 10
	// maxMalformedBytes is how many bytes of malformed messages in a row are put
	// up with.
	maxMalformedBytes = 8 << 20
	// unknownEvery is how often a message with an unknown label may come and not
	// count as malformed: newer relays may have more to say than we know.
	unknownEvery = time.Second
)

// read is the goroutine that reads. It hands Receive one message for each time
// that it asks, and is parked in between.
func (c *conn) read() {
	defer c.giveBack(0)
	asked := false
	for {
		// No context: it would cost an allocation for each part of a message.
		// Whatever ends the connection closes the websocket.
		_, r, err := c.ws.Reader(context.Background())
		if err != nil {
			_ = c.end(readError(err)) // Receive says it
			return
		}
		c.signs.heard.Add(1)
		c.signs.framing.message()
		if !asked && !c.park() {
			return
		}
		asked = true
		c.giveBack(0) // Receive was called again: the last message has gone its way
		m, ok, err := c.message(r)
		if err != nil {
			_ = c.end(err) // Receive says it
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

// park waits until Receive asks for a message. It returns false if the connection
// has ended.
func (c *conn) park() bool {
	select {
	case <-c.want:
		return true
	default:
	}
	// In this order, so that nobody who saw us not parked finds no sign of life.
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

// message reads and parses one message; ok is false if it was dropped. An error
// means that the connection can't go on.
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

// readAll reads a message into the connection's buffer. The buffer grows with
// what has arrived, never with what a frame's header announces, and beyond keptBuffer
// only within the read budget.
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
	if cap(buf) <= keptBuffer { // else the one before stays
		c.in = buf
	}
	c.giveBack(int64(len(buf)))
	return buf, nil
}

// grow returns buf with room for size bytes, not more: what append would add to that
// nobody has reserved.
func grow(buf []byte, size int) []byte {
	larger := make([]byte, len(buf), max(size, len(buf)+1))
	copy(larger, buf)
	return larger
}

// strikes are the malformed messages since the last good one.
type strikes struct {
	count, bytes int
	unknown      time.Time // of the last message with an unknown label
}

// drop counts a message that could not be parsed. It returns an error if it was
// one too many.
func (c *conn) drop(err error, size int) error {
	c.stats.dropped.Add(uint64(size))
	c.t.cfg.Logger.Debug("dropped a message of a relay", keyRelay, c.relay, keyError, err, keySize, size)
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

// reserve takes a part of the read budget, and waits until there is one.
func (c *conn) reserve() error {
	// Meanwhile the relay's pings and pongs are out of reach, as when parked.
	c.parked.Store(true)
	c.signs.heard.Add(1)
	defer c.parked.Store(false)
	defer c.waits.during()()
	slot, err := c.t.reading.Acquire(c.ctx, limit.Stranger{ID: c.host}, c.t.cfg.fixed.ReadLimit)
	c.slot = slot
	return err
}

// giveBack returns to the read budget all but keep bytes.
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

// beat writes a ping, or else a pong. The error is final.
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
