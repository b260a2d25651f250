package wstransport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

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
	m, err = c.t.cfg.fixed.Limits.Parse(data)
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
	buf := c.in[:0]
	for {
		if len(buf) == cap(buf) {
			if c.held == 0 && len(buf) >= keptBuffer {
				if err := c.reserve(); err != nil {
					return nil, err
				}
				moving = c.expectProgress()
			}
			most := keptBuffer
			if c.held > 0 {
				most = max(keptBuffer+chunk, int(c.t.cfg.ReadLimit)+1)
			}
			buf = grow(buf, min(most, max(firstBuffer, 2*len(buf))))
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), len(buf)+chunk)])
		buf = buf[:len(buf)+n]
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
