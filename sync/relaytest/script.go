package relaytest

import (
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// ConnScript controls a connection. After the connection has ended its methods do nothing.
type ConnScript struct {
	conn *Conn
}

// Conn returns the number of the connection; the relay's first is 1.
func (s *ConnScript) Conn() int { return s.conn.id }

// Relay returns the relay of the connection.
func (s *ConnScript) Relay() *Relay { return s.conn.relay }

// Send queues messages in order behind earlier ones.
func (s *ConnScript) Send(messages ...wire.Message) { s.SendAfter(0, messages...) }

// SendAfter sends messages in order after d.
func (s *ConnScript) SendAfter(d time.Duration, messages ...wire.Message) {
	frames := make([]frame, len(messages))
	for i, m := range messages {
		frames[i].msg = m
	}
	s.queue(d, frames)
}

// Raw sends text unchanged, even if it is malformed.
func (s *ConnScript) Raw(text []byte) {
	s.queue(0, []frame{{text: append([]byte{}, text...)}})
}

// Answer answers a request like a relay without Handle.
func (s *ConnScript) Answer(req wire.Request) { s.conn.process(req, requestSize(req)); s.conn.stir() }

// Cut ends the connection after all earlier messages were read.
func (s *ConnScript) Cut() { s.CutAfter(0) }

// CutAfter ends the connection after d.
func (s *ConnScript) CutAfter(d time.Duration) { s.queue(d, []frame{{cut: true}}) }

func (s *ConnScript) queue(d time.Duration, frames []frame) {
	if len(frames) == 0 {
		return
	}
	s.conn.relay.mu.Lock()
	s.conn.push(&answer{frames: frames, due: time.Now().Add(d)})
	s.conn.relay.mu.Unlock()
	s.conn.stir()
}
