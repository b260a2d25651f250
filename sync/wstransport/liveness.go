package wstransport

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
)

// provenAfter is the time after which an open connection proves that the host is a relay.
const provenAfter = time.Minute

// keepAlive is the goroutine that sends pings or pongs to the relay, and ends the connection if the
// relay sends nothing after a ping.
func (c *conn) keepAlive(u graspsync.URL) {
	pings := time.NewTicker(c.t.cfg.fixed.PingInterval)
	defer pings.Stop()
	proven := time.After(c.t.provenAfter)
	var deadline <-chan time.Time // deadline for a sign of life after a ping
	var receivedBefore uint64     // signs of life before the ping
	for {
		select {
		case <-c.ended:
			return
		case <-c.liveness.flood:
			_ = c.end(errFlood)
		case <-proven:
			c.t.cfg.Dialer.MarkProven(u.HostPort.Host)
		case <-deadline:
			if deadline = nil; c.liveness.received.Load() == receivedBefore {
				_ = c.end(errSilent)
			}
		case <-pings.C:
			c.liveness.controlFrames.Store(0)
			// While the reading goroutine is parked, pings and pongs are not read. In this order,
			// because parking counts as a sign of life; see park.
			received := c.liveness.received.Load()
			ping := !c.parked.Load()
			if err := c.sendControlFrame(ping); err == nil && ping && deadline == nil {
				receivedBefore, deadline = received, time.After(c.t.cfg.fixed.PingTimeout)
			}
		}
	}
}

// maxControls is the maximum number of pings and pongs of a relay within 29 s.
const maxControls = 1000

// liveness counts the signs of life of a relay, which are received messages, parts and frames.
type liveness struct {
	received      atomic.Uint64 // all signs of life
	controlFrames atomic.Int64  // pings and pongs since the last ping of ours
	flood         chan struct{} // one slot; filled after too many control frames
	emptyLimiter  emptyLimiter  // bytes without content
}

func newLiveness() *liveness { return &liveness{flood: make(chan struct{}, 1)} }

// onControlFrame records a ping or pong, and returns whether to answer it. The websocket library
// calls it, so it must not close the websocket.
func (s *liveness) onControlFrame() bool {
	s.received.Add(1)
	s.emptyLimiter.addControlFrame()
	if s.controlFrames.Add(1) <= maxControls {
		return true
	}
	select {
	case s.flood <- struct{}{}:
	default:
	}
	return false
}

// A client's ping and pong without payload, masked with a zero key (RFC 6455), written below the
// websocket library, which cannot send an unsolicited pong. The library writes a control frame in
// one call, as we do, and writes messages only in Send, which holds c.writing like we do.
const (
	pingFrame = "\x89\x80\x00\x00\x00\x00"
	pongFrame = "\x8a\x80\x00\x00\x00\x00"
)

const (
	// maxEmpty is the maximum number of received bytes without content, which the websocket library
	// skips without limit.
	maxEmpty = 128 << 10
	// perMessage is the overhead of frames and compression for a short message, and perControl the
	// size of the largest ping.
	perMessage, perControl = 64, 2 + 125
)

// emptyLimiter counts the bytes that the websocket library reads, and fails if too many have no
// content. The reading goroutine owns it.
type emptyLimiter struct {
	io.ReadWriteCloser
	empty int
}

// Read implements [io.Reader].
func (f *emptyLimiter) Read(p []byte) (int, error) {
	n, err := f.ReadWriteCloser.Read(p)
	if f.empty += n; f.empty > maxEmpty {
		return 0, errEmpty
	}
	return n, err
}

func (f *emptyLimiter) addMessage() { f.subtract(perMessage) }

// addText records received content. Incompressible text has additional frames and blocks.
func (f *emptyLimiter) addText(n int) { f.subtract(2 * n) }

func (f *emptyLimiter) addControlFrame() { f.subtract(perControl) }

func (f *emptyLimiter) subtract(n int) { f.empty = max(0, f.empty-n) }
