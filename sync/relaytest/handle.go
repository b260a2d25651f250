package relaytest

import (
	"fmt"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// greet is what the relay does when a connection was made.
func (c *Conn) greet() {
	r := c.relay
	r.mu.Lock()
	if a := r.behavior.Auth; a == AuthOffered || a != AuthNone && r.program().manners().greets {
		c.say(wire.Message{Type: wire.TypeAuth, Text: c.challenge()})
	}
	onConnect := r.behavior.OnConnect
	r.mu.Unlock()
	if onConnect != nil {
		onConnect(&ConnScript{conn: c})
	}
	c.stir()
}

// handle takes a message in and queues the answer; it returns why the connection ends,
// if the message is larger than the relay takes or one too many. relay.mu is not held.
func (c *Conn) handle(req wire.Request, size int) error {
	r := c.relay
	r.mu.Lock()
	if c.closed {
		r.mu.Unlock()
		return nil
	}
	r.requests = remember(r.requests, Seen{At: time.Now(), Conn: c.id, Size: size, Request: req})
	r.traffic.MessagesReceived++
	r.traffic.BytesReceived += int64(size)
	c.inspect(req, size)
	b := r.behavior
	r.mu.Unlock()

	if exceeds(size, b.MaxMessage) || exceeds(size, c.info.MaxMessageLength) {
		return errLarge
	}
	if !c.another() {
		return errBusy
	}
	if b.Handle == nil || !b.Handle(&ConnScript{conn: c}, req) {
		c.process(req, size)
	}
	return nil
}

// another counts a message, and returns false if it is one too many.
func (c *Conn) another() bool {
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	return c.spend(rateMessages, c.relay.behavior.MessageRate)
}

// exceeds reports whether n is over a limit; 0 is no limit.
func exceeds(n, limit int) bool { return limit > 0 && n > limit }

// process answers a message of so many bytes as the behavior says, Handle apart.
func (c *Conn) process(req wire.Request, size int) {
	switch req.Type {
	case wire.TypeReq:
		c.request(req, size)
	case wire.TypeClose:
		c.unsubscribe(req.Sub)
	case wire.TypePublish:
		c.accept(req.Event, size-len(`["EVENT",]`))
	case wire.TypeAnswer:
		c.authenticate(req.Event)
	case wire.TypeNegOpen:
		c.negOpen(req)
	case wire.TypeNegSend:
		c.negSend(req)
	case wire.TypeNegClose:
		c.relay.mu.Lock()
		delete(c.negs, req.Sub)
		c.relay.mu.Unlock()
	}
}

// say queues one message. relay.mu is held.
func (c *Conn) say(m wire.Message) {
	c.push(&answer{frames: []frame{{msg: m}}, due: c.soon()})
}

// soon is when an answer to what came now goes out. relay.mu is held.
func (c *Conn) soon() time.Time { return time.Now().Add(c.relay.behavior.Latency) }

// accept takes an EVENT of the client, of so many bytes.
func (c *Conn) accept(ev *nostr.Event, size int) {
	id, err := graspsync.ParseEventID(ev.ID)
	if err != nil {
		return
	}
	c.relay.mu.Lock()
	most, m := c.relay.behavior.MaxEvent, c.relay.program().manners()
	calm := c.spend(rateEvents, c.relay.behavior.EventRate)
	c.relay.mu.Unlock()
	var out outcome
	switch {
	case !calm:
		out.text = m.eventRate
	case exceeds(size, most) && strings.Count(m.eventSize, "%d") == 2:
		out.text = fmt.Sprintf(m.eventSize, size, most)
	case exceeds(size, most):
		out.text = fmt.Sprintf(m.eventSize, size)
	case !ev.CheckID():
		out.text = m.wrongID
	case !signed(ev):
		out.text = m.wrongSig
	default:
		out.accepted, out.text = c.relay.publish(ev)
		if o, ok := m.outcomes[out.text]; ok && !out.accepted {
			out = o
		}
	}
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	c.say(wire.Message{Type: wire.TypeOK, ID: id, Accepted: out.accepted, Text: out.text})
}

// signed checks a genuine or a cheap signature.
func signed(ev *nostr.Event) bool {
	if cheap(ev) {
		return true
	}
	ok, err := ev.CheckSignature()
	return err == nil && ok
}

// authenticate takes an AUTH of the client.
func (c *Conn) authenticate(ev *nostr.Event) {
	id, idErr := graspsync.ParseEventID(ev.ID)
	genuine := idErr == nil && ev.CheckID() && signed(ev)
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	m := c.relay.program().manners()
	out := outcome{accepted: true, text: m.authed}
	if !c.spend(rateAuths, c.relay.behavior.AuthRate) {
		out = outcome{text: m.authRate}
	} else if fault := c.authFault(ev, genuine, m.authAge); fault != "" {
		out = outcome{text: m.authWords(fault)}
	}
	c.authed = c.authed || out.accepted
	c.say(wire.Message{Type: wire.TypeOK, ID: id, Accepted: out.accepted, Text: out.text})
}

// authFault says what is wrong with an AUTH. relay.mu is held.
func (c *Conn) authFault(ev *nostr.Event, genuine bool, age time.Duration) string {
	relay, err := graspsync.ParseRelayURL(tagValue(ev, "relay"))
	_, known := c.challenges[tagValue(ev, "challenge")]
	switch {
	case !genuine:
		return faultEvent
	case ev.Kind != nostr.KindClientAuthentication:
		return faultKind
	case !known:
		return faultChallenge
	case err != nil || relay != c.relay.url:
		return faultRelay
	case age > 0 && time.Since(ev.CreatedAt.Time()).Abs() > age:
		return faultTime
	}
	return ""
}

func tagValue(ev *nostr.Event, name string) string {
	for _, tag := range ev.Tags {
		if len(tag) >= 2 && tag[0] == name {
			return tag[1]
		}
	}
	return ""
}
