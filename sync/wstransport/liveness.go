package wstransport

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
)

// provenAfter is the time after which an open connection proves that the host is a relay.
const provenAfter = time.Minute

// keepAlive is the goroutine that sends signs of life to the relay, and ends the connection if the
// relay gives none.
func (c *conn) keepAlive(u graspsync.URL) {
	pings := time.NewTicker(c.t.cfg.fixed.PingInterval)
	defer pings.Stop()
	proven := time.After(c.t.proven)
	var late <-chan time.Time // deadline for a sign of life after a ping
	var before uint64         // signs of life before the ping
	for {
		select {
		case <-c.ended:
			return
		case <-c.signs.flood:
			_ = c.end(errFlood)
		case <-proven:
			c.t.cfg.Dialer.MarkProven(u.HostPort.Host)
		case <-late:
			if late = nil; c.signs.heard.Load() == before {
				_ = c.end(errSilent)
			}
		case <-pings.C:
			c.signs.controls.Store(0)
			// While the reading goroutine is parked, pings and pongs are not read. In this order,
			// because parking counts as a sign of life; see park.
			heard := c.signs.heard.Load()
			ping := !c.parked.Load()
			if err := c.beat(ping); err == nil && ping && late == nil {
				before, late = heard, time.After(c.t.cfg.fixed.PingTimeout)
			}
		}
	}
}

// maxControls is the maximum number of pings and pongs of a relay within 29 s.
const maxControls = 1000

type signs struct {
	heard    atomic.Uint64 // all signs
	controls atomic.Int64  // pings and pongs since the last ping of ours
	flood    chan struct{} // one slot; there were too many
	framing  framing       // bytes without content
}

func newSigns() *signs { return &signs{flood: make(chan struct{}, 1)} }

// control records a ping or pong, and returns whether to answer it. The websocket library calls it,
// so it must not close the websocket.
func (s *signs) control() bool {
	s.heard.Add(1)
	s.framing.control()
	if s.controls.Add(1) <= maxControls {
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

// framing counts the bytes below the websocket library, and fails if too many have no content. The
// reading goroutine owns it.
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

func (f *framing) message() { f.came(perMessage) }

// text records received content. Incompressible text has additional frames and blocks.
func (f *framing) text(n int) { f.came(2 * n) }

func (f *framing) control() { f.came(perControl) }

func (f *framing) came(n int) { f.empty = max(0, f.empty-n) }
