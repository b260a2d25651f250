package wstransport

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// maxControls is how many pings and pongs a relay may send in one
// [Config.PingInterval]. They cost us work and never reach Receive.
const maxControls = 1000

// signs are the signs of life that a relay gives.
type signs struct {
	heard    atomic.Uint64 // all of them
	controls atomic.Int64  // pings and pongs since the last tick
	flood    chan struct{} // one slot, filled when these are too many
}

func newSigns() *signs { return &signs{flood: make(chan struct{}, 1)} }

// control notes a ping or pong, and returns whether it is to be answered. It is
// called from within the websocket library, which must not be closed from there.
func (s *signs) control() bool {
	s.heard.Add(1)
	if s.controls.Add(1) <= maxControls {
		return true
	}
	select {
	case s.flood <- struct{}{}:
	default:
	}
	return false
}

// A ping and a pong of a client, without payload: final, masked as RFC 6455 wants
// it, with a key that has nothing to mask.
//
// They are written beneath the websocket library, which can neither send a pong
// unasked nor tell a ping that was not sent from one that was not answered. That
// is safe for these reasons: the library writes a control frame in one call, as we
// do, and such calls do not mix; and it writes messages, which may take several
// calls, only in Send, which holds c.writing like us.
const (
	pingFrame = "\x89\x80\x00\x00\x00\x00"
	pongFrame = "\x8a\x80\x00\x00\x00\x00"
)

// keepAlive is the goroutine that gives signs of life and asks for them.
func (c *conn) keepAlive() {
	tick := time.NewTicker(c.t.cfg.PingInterval)
	defer tick.Stop()
	var (
		late   <-chan time.Time // armed by a ping
		before uint64           // signs of life at that ping
	)
	for {
		select {
		case <-tick.C:
			c.signs.controls.Store(0)
			// While we are parked the relay's pings are out of reach, and so would
			// be its pong. In this order: if we are parked after all by the time
			// the pong is due, that has counted as a sign of life; see park.
			heard := c.signs.heard.Load()
			ping := !c.parked.Load()
			if err := c.beat(ping); err != nil {
				return
			}
			if ping && late == nil {
				before, late = heard, time.After(c.t.cfg.fixed.PingTimeout)
			}
		case <-late:
			late = nil
			if c.signs.heard.Load() == before {
				_ = c.end(errSilent) // Receive says it
				return
			}
		case <-c.signs.flood:
			_ = c.end(errFlood) // Receive says it
			return
		case <-c.ended:
			return
		}
	}
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
