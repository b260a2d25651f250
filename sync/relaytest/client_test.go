package relaytest_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// client is a connection with helpers for tests.
type client struct {
	*testing.T
	*relaytest.Conn
	n int
}

func connect(t *testing.T, r *relaytest.Relay) *client {
	t.Helper()
	c, err := r.Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &client{T: t, Conn: c}
}

func (c *client) send(req wire.Request) {
	c.Helper()
	require.NoError(c, c.Send(c.Context(), req))
}

// req sends a REQ with a new id.
func (c *client) req(fs ...nostr.Filter) (sub string) {
	c.Helper()
	c.n++
	sub = fmt.Sprintf("s%d", c.n)
	c.send(wire.Request{Type: wire.TypeReq, Sub: sub, Filters: fs})
	return sub
}

func (c *client) receive() wire.Message {
	c.Helper()
	m, err := c.Receive(c.Context())
	require.NoError(c, err)
	return m
}

// script receives n messages and returns them as text, events by their content.
func (c *client) script(n int) []string {
	c.Helper()
	var all []string
	for range n {
		all = append(all, render(c.receive()))
	}
	return all
}

// rest receives all messages that are due. Only for bubbles.
func (c *client) rest() []string {
	c.Helper()
	var all []string
	ch := make(chan string)
	done := make(chan struct{})
	conn := c.Conn
	go func() {
		defer close(ch)
		for {
			m, err := conn.Receive(c.Context())
			if err != nil {
				return
			}
			select {
			case ch <- render(m):
			case <-done:
				return
			}
		}
	}()
	for {
		synctest.Wait()
		select {
		case s, ok := <-ch:
			if !ok {
				return append(all, "END")
			}
			all = append(all, s)
			continue
		default:
		}
		close(done)
		_ = conn.Close()
		return all
	}
}

func render(m wire.Message) string {
	switch m.Type {
	case wire.TypeEvent:
		return m.Sub + " " + m.Event.Content
	case wire.TypeEOSE:
		switch m.Hint {
		case wire.HintFinish:
			return m.Sub + " EOSE finish"
		case wire.HintMore:
			return m.Sub + " EOSE more"
		}
		return m.Sub + " EOSE"
	case wire.TypeClosed:
		return m.Sub + " CLOSED " + m.Text
	case wire.TypeNotice:
		return "NOTICE " + m.Text
	case wire.TypeNegErr:
		return fmt.Sprintf("%s NEG-ERR %s %d", m.Sub, m.Text, m.Max)
	case wire.TypeNegMsg:
		return fmt.Sprintf("%s NEG-MSG %x", m.Sub, m.Payload)
	case wire.TypeOK:
		return fmt.Sprintf("OK %v %s", m.Accepted, m.Text)
	case wire.TypeAuth:
		return "AUTH " + m.Text
	}
	return fmt.Sprint(m)
}

// notes returns n events of kind 1 with the times from, from+1 and so on, and the time as content.
func notes(key *relaytest.Key, from, n int) []*nostr.Event {
	events := make([]*nostr.Event, n)
	for i := range events {
		events[i] = key.Event(nostr.Timestamp(from+i), 1, fmt.Sprint(from+i))
	}
	return events
}

func ts(n int) *nostr.Timestamp {
	t := nostr.Timestamp(n)
	return &t
}

var kind1 = nostr.Filter{Kinds: []int{1}}

func limit(n int) nostr.Filter { return nostr.Filter{Kinds: []int{1}, Limit: n, LimitZero: n == 0} }

func relay(b relaytest.Behavior) *relaytest.Relay { return relaytest.New("wss://a.example", b) }
