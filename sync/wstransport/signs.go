package wstransport

import (
	"sync/atomic"
)

// maxControls is how many pings and pongs a relay may send in one
// 29 s. They cost us work and never reach Receive.
const maxControls = 1000

// signs are the signs of life that a relay gives.
type signs struct {
	heard    atomic.Uint64 // all of them
	controls atomic.Int64  // pings and pongs since the last tick
	flood    atomic.Bool   // these were too many
	pulse    *pulse        // is told so; set before anything is read
	framing  framing       // what was read for nothing
}

func newSigns() *signs { return &signs{} }

// control notes a ping or pong, and returns whether it is to be answered. It is
// called from within the websocket library, which must not be closed from there.
func (s *signs) control() bool {
	s.heard.Add(1)
	s.framing.control()
	if s.controls.Add(1) <= maxControls {
		return true
	}
	s.flood.Store(true)
	s.pulse.hurry()
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
