package relaytest

import (
	"errors"
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/wire"
)

// greet is what the relay does when a connection was made.
func (c *Conn) greet() {
	r := c.relay
	r.mu.Lock()
	if r.behavior.Auth != AuthNone {
		r.challenges++
		c.challenge = fmt.Sprintf("challenge-%d", r.challenges)
		c.say(wire.Message{Type: wire.TypeAuth, Text: c.challenge})
	}
	onConnect := r.behavior.OnConnect
	r.mu.Unlock()
	if onConnect != nil {
		onConnect(&ConnScript{conn: c})
	}
	c.stir()
}

// handle takes a message in and queues the answer; it returns false if the
// message is larger than the relay takes. relay.mu is not held.
func (c *Conn) handle(req wire.Request, size int) bool {
	r := c.relay
	r.mu.Lock()
	if c.closed {
		r.mu.Unlock()
		return true
	}
	r.requests = remember(r.requests, Seen{At: time.Now(), Conn: c.id, Size: size, Request: req})
	r.traffic.MessagesReceived++
	r.traffic.BytesReceived += int64(size)
	c.inspect(req, size)
	b := r.behavior
	r.mu.Unlock()

	if exceeds(size, b.MaxMessage) || exceeds(size, c.info.MaxMessageLength) {
		return false
	}
	if b.Handle == nil || !b.Handle(&ConnScript{conn: c}, req) {
		c.process(req)
	}
	return true
}

// exceeds reports whether n is over a limit; 0 is no limit.
func exceeds(n, limit int) bool { return limit > 0 && n > limit }

// process answers a message as the behavior says, Handle apart.
func (c *Conn) process(req wire.Request) {
	switch req.Type {
	case wire.TypeReq:
		c.request(req)
	case wire.TypeClose:
		c.unsubscribe(req.Sub)
	case wire.TypePublish:
		c.accept(req.Event)
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

// accept takes an EVENT of the client.
func (c *Conn) accept(ev *nostr.Event) {
	ok, reason := false, "invalid: id or signature"
	if id, err := filters.ParseEventID(ev.ID); err == nil {
		if verify(ev) == nil {
			ok, reason = c.relay.publish(ev)
		}
		c.relay.mu.Lock()
		c.say(wire.Message{Type: wire.TypeOK, ID: id, Accepted: ok, Text: reason})
		c.relay.mu.Unlock()
	}
}

// verify checks a genuine or a cheap signature.
func verify(ev *nostr.Event) error {
	if !ev.CheckID() {
		return errors.New("wrong id")
	}
	if cheap(ev) {
		return nil
	}
	if ok, err := ev.CheckSignature(); err != nil || !ok {
		return errors.New("wrong signature")
	}
	return nil
}

func (c *Conn) authenticate(ev *nostr.Event) {
	reason := ""
	relay, err := filters.ParseRelayURL(tagValue(ev, "relay"))
	id, idErr := filters.ParseEventID(ev.ID)
	c.relay.mu.Lock()
	challenge := c.challenge
	c.relay.mu.Unlock()
	switch {
	case idErr != nil || verify(ev) != nil:
		reason = "invalid: id or signature"
	case ev.Kind != nostr.KindClientAuthentication:
		reason = "invalid: kind"
	case challenge == "" || tagValue(ev, "challenge") != challenge:
		reason = "invalid: challenge"
	case err != nil || relay != c.relay.url:
		reason = "invalid: relay"
	}
	c.relay.mu.Lock()
	defer c.relay.mu.Unlock()
	c.authed = c.authed || reason == ""
	c.say(wire.Message{Type: wire.TypeOK, ID: id, Accepted: reason == "", Text: reason})
}

func tagValue(ev *nostr.Event, name string) string {
	for _, tag := range ev.Tags {
		if len(tag) >= 2 && tag[0] == name {
			return tag[1]
		}
	}
	return ""
}
