package wstransport

import (
	"sync/atomic"
)

// maxControls is the maximum number of pings and pongs that a relay may send within 29 s. They cost
// CPU and never reach Receive.
const maxControls = 1000

// signs counts the signs of life of a relay.
type signs struct {
	heard    atomic.Uint64 // all signs
	controls atomic.Int64  // pings and pongs since the last tick
	flood    atomic.Bool   // there were too many
	pulse    *pulse        // gets a flood; set before reading begins
	framing  framing       // bytes without content
}

func newSigns() *signs { return &signs{} }

// control records a ping or pong, and returns whether to answer it. The websocket library calls it,
// so it must not close the websocket.
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

// A client's ping and pong without payload. They are final and masked with a zero key, as RFC 6455
// requires.
//
// They are written below the websocket library, because the library cannot send an unsolicited
// pong, and cannot distinguish an unsent ping from an unanswered one. This is safe because the
// library writes a control frame in one call, as we do, and writes messages, which may take several
// calls, only in Send, which holds c.writing like we do.
const (
	pingFrame = "\x89\x80\x00\x00\x00\x00"
	pongFrame = "\x8a\x80\x00\x00\x00\x00"
)
