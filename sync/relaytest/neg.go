package relaytest

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/wire"
)

// negSession is an open NEG session of a connection.
type negSession struct {
	set      *negentropy.Set
	inFlight bool // the answer to the last message was not delivered
	items    int  // records that the filter finds
	rounds   int
	last     time.Time
}

// negOpen answers NEG-OPEN.
func (c *Conn) negOpen(req wire.Request) {
	r := c.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.closed {
		return
	}
	off := r.behavior.off()
	if off && r.behavior.Software != SoftwareAny {
		c.refuseNeg(req.Sub) // a program that does not know NIP-77 looks at nothing else
		return
	}
	var items []negentropy.Item
	found := func() int {
		if items == nil && len(req.Filters) > 0 && !off {
			items = r.items(req.Filters[0])
		}
		return len(items)
	}
	if no := r.program().negOpen(c, req, found); no != nil {
		c.turnDown(wire.TypeNegErr, req.Sub, no)
		return
	}
	if c.refuseNeg(req.Sub) || len(req.Filters) == 0 {
		return
	}
	n := found()
	c.negs[req.Sub] = &negSession{set: negentropy.NewSet(append(items, r.lies(req.Filters[0])...)), items: n}
	c.negAnswer(req)
}

// off reports whether the relay does not do NIP-77 at all.
func (b *Behavior) off() bool {
	switch b.Negentropy {
	case NegNotice, NegErr, NegError, NegClosed, NegSilent:
		return true
	}
	return false
}

// refuseNeg refuses all of NIP-77, if that is the behavior.
func (c *Conn) refuseNeg(sub string) bool {
	b := &c.relay.behavior
	switch b.Negentropy {
	case NegNotice:
		c.say(wire.Message{Type: wire.TypeNotice, Text: orText(b.NegText, c.relay.program().manners().negOff)})
	case NegErr:
		c.say(wire.Message{Type: wire.TypeNegErr, Sub: sub, Text: orText(b.NegText, "error: negentropy disabled")})
	case NegError:
		m := wire.Message{Type: wire.TypeNegErr, Sub: sub, Text: orText(b.NegText, "negentropy is not supported here")}
		c.push(&answer{frames: []frame{{msg: m, negError: true}}, due: c.soon()})
	case NegClosed:
		c.say(wire.Message{Type: wire.TypeClosed, Sub: sub, Text: orText(b.NegText, "unsupported: NIP-77")})
	case NegSilent:
	default:
		return false
	}
	return true
}

// negSend answers NEG-MSG.
func (c *Conn) negSend(req wire.Request) {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	if c.closed {
		return
	}
	b := &c.relay.behavior
	s := c.negs[req.Sub]
	if s != nil && (b.NegTimeout > 0 && time.Since(s.last) > b.NegTimeout || b.NegRounds > 0 && s.rounds >= b.NegRounds) {
		delete(c.negs, req.Sub)
		s = nil
	}
	p := c.relay.program()
	if no := p.negSend(c); no != nil {
		c.turnDown(wire.TypeNegErr, req.Sub, no)
		return
	}
	if s == nil {
		c.turnDown(wire.TypeNegErr, req.Sub, &refusal{text: p.manners().negLost})
		return
	}
	c.negAnswer(req)
}

// negAnswer answers one message of an open session.
func (c *Conn) negAnswer(req wire.Request) {
	b := &c.relay.behavior
	s := c.negs[req.Sub]
	reply, err := negReply(b, s, req.Payload)
	if err != nil {
		delete(c.negs, req.Sub)
		c.turnDown(wire.TypeNegErr, req.Sub, &refusal{text: c.relay.program().manners().negInvalid})
		return
	}
	s.rounds++
	s.last = time.Now()
	s.inFlight = true
	c.push(&answer{
		frames: []frame{{
			msg:  wire.Message{Type: wire.TypeNegMsg, Sub: req.Sub, Payload: reply},
			sent: func() { s.inFlight = false },
		}},
		due: c.soon(),
	})
}

func negReply(b *Behavior, s *negSession, msg []byte) ([]byte, error) {
	const version = 0x61
	toInfinity := []byte{version, 0, 0} // one range without end
	switch b.Negentropy {
	case NegEndless:
		sum := sha256.Sum256(fmt.Append(nil, "endless", s.rounds))
		return append(append(toInfinity, 1), sum[:16]...), nil
	case NegGarbage:
		return []byte{version, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, nil
	case NegHugeList:
		return append(toInfinity, 2, 0xc0, 0x80, 0x80, 0x00), nil
	}
	return negentropy.Answer(s.set, msg, or(b.NegFrame, 500_000))
}

// items lists what is stored for a filter.
func (r *Relay) items(f nostr.Filter) []negentropy.Item {
	found := r.store.query(f)
	items := make([]negentropy.Item, 0, len(found))
	for _, rec := range found {
		id, err := graspsync.ParseEventID(rec.ev.ID)
		if err == nil && rec.ev.CreatedAt >= 0 {
			items = append(items, negentropy.Item{CreatedAt: uint64(rec.ev.CreatedAt), ID: id})
		}
	}
	return items
}

// lies lists ids that do not exist, in the time that the filter asks for.
func (r *Relay) lies(f nostr.Filter) []negentropy.Item {
	at := nostr.Timestamp(1_700_000_000)
	if f.Until != nil {
		at = min(at, *f.Until)
	}
	if f.Since != nil {
		at = max(at, *f.Since)
	}
	var items []negentropy.Item
	for i := range r.behavior.LyingNegentropy {
		id := sha256.Sum256(fmt.Append(nil, "lie", r.url.String(), i))
		items = append(items, negentropy.Item{CreatedAt: uint64(max(0, at)), ID: id})
	}
	return items
}

func orText(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
