package relaytest

import (
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// ConnScript lets [Behavior.Handle] and [Behavior.OnConnect] say whatever they
// like on a connection. It may be kept and used later, until the connection ends;
// then its methods do nothing.
type ConnScript struct {
	conn *Conn
}

// Conn returns the number of the connection; 1 is the relay's first.
func (s *ConnScript) Conn() int { return s.conn.id }

// Relay returns the relay that the connection belongs to.
func (s *ConnScript) Relay() *Relay { return s.conn.relay }

// Send sends messages, in order, behind what is already on its way.
func (s *ConnScript) Send(messages ...wire.Message) { s.SendAfter(0, messages...) }

// SendAfter sends messages, in order, when d has passed.
func (s *ConnScript) SendAfter(d time.Duration, messages ...wire.Message) {
	frames := make([]frame, len(messages))
	for i, m := range messages {
		frames[i].msg = m
	}
	s.queue(d, frames)
}

// Raw sends a text as it is, well-formed or not. Without a real socket the client
// never sees it, since a relaysync.Conn drops malformed messages.
func (s *ConnScript) Raw(text []byte) {
	s.queue(0, []frame{{raw: append([]byte{}, text...)}})
}

// Answer answers the request as the relay does without a Handle.
func (s *ConnScript) Answer(req wire.Request) { s.conn.process(req, requestSize(req)); s.conn.stir() }

// Cut ends the connection once everything before was read.
func (s *ConnScript) Cut() { s.CutAfter(0) }

// CutAfter ends the connection when d has passed.
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
