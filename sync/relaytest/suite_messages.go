package relaytest

import (
	"fmt"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

func reqAll(sub string) wire.Request {
	return wire.Request{Type: wire.TypeReq, Sub: sub, Filters: []nostr.Filter{{Kinds: []int{1}}}}
}

func checkOrder(s *suite) {
	key := NewCheapKey("order")
	const n = 500
	for i := range n {
		s.relay.Publish(key.Event(nostr.Timestamp(1000+i), 1, fmt.Sprint(i)))
	}
	c := s.dial()
	s.send(c, reqAll("one"))
	for i := n - 1; i >= 0; i-- {
		m := s.receive(c)
		require.Equal(s, wire.TypeEvent, m.Type)
		require.Equal(s, "one", m.Sub)
		require.Equal(s, fmt.Sprint(i), m.Event.Content)
		require.True(s, m.Event.CheckID(), "the event arrived changed")
	}
	m := s.receive(c)
	assert.Equal(s, wire.TypeEOSE, m.Type)
	assert.Equal(s, "one", m.Sub)
}

func checkMessages(s *suite) {
	ev := NewKey("messages").Event(1_700_000_000, 1, "text with \"quotes\", \\ and \n", nostr.Tag{"a", "ä", ""}, nostr.Tag{"d"})
	id := eventtest.Of(ev).ID
	want := []wire.Message{
		{Type: wire.TypeEvent, Sub: "x", Event: eventtest.Of(ev)},
		{Type: wire.TypeEOSE, Sub: "x"},
		{Type: wire.TypeEOSE, Sub: "x", Hint: wire.HintFinish},
		{Type: wire.TypeEOSE, Sub: "x", Hint: wire.HintMore},
		{Type: wire.TypeClosed, Sub: "x", Text: "error: out of \"luck\""},
		{Type: wire.TypeNotice, Text: "hello, wörld"},
		{Type: wire.TypeOK, ID: id, Accepted: true},
		{Type: wire.TypeOK, ID: id, Text: "blocked: no"},
		{Type: wire.TypeAuth, Text: "challenge"},
		{Type: wire.TypeNegMsg, Sub: "n", Payload: []byte{0x61, 0, 255}},
		{Type: wire.TypeNegErr, Sub: "n", Text: "closed: gone"},
		{Type: wire.TypeNegErr, Sub: "n", Text: "blocked: too much", Max: 1000},
	}
	s.relay.Update(func(b *Behavior) {
		b.OnConnect = func(c *ConnScript) { c.Send(want...) }
	})
	c := s.dial()
	for _, w := range want {
		m := s.receive(c)
		assert.Positive(s, m.Size, "size of %v", w)
		m.Size = 0
		assert.Equal(s, w, m)
	}
}

func checkRequests(s *suite) {
	key := NewKey("requests")
	since, until := nostr.Timestamp(10), nostr.Timestamp(20)
	f := nostr.Filter{
		Kinds: []int{1, 30617}, Authors: []string{key.Hex()}, Tags: nostr.TagMap{"a": {"x:y", "ü\""}, "E": {key.Hex()}},
		Since: &since, Until: &until, Limit: 7,
	}
	want := []wire.Request{
		{Type: wire.TypeReq, Sub: "a", Filters: []nostr.Filter{f, {LimitZero: true}}},
		{Type: wire.TypeClose, Sub: "a"},
		{Type: wire.TypePublish, Event: key.Event(5, 1, "hello", nostr.Tag{"t", "x"})},
		{Type: wire.TypeAnswer, Event: key.Event(5, nostr.KindClientAuthentication, "")},
		{Type: wire.TypeNegOpen, Sub: "n", Filters: []nostr.Filter{{Kinds: []int{1}}}, Payload: []byte{0x61, 1, 2}},
		{Type: wire.TypeNegSend, Sub: "n", Payload: []byte{0x61}},
		{Type: wire.TypeNegClose, Sub: "n"},
	}
	s.relay.Update(func(b *Behavior) {
		b.Handle = func(*ConnScript, wire.Request) bool { return true }
	})
	c := s.dial()
	for _, w := range want {
		s.send(c, w)
	}
	s.eventually("not all requests arrived", func() bool { return len(s.relay.Requests()) == len(want) })
	for i, got := range s.relay.Requests() {
		assert.Equal(s, want[i].Type, got.Type)
		assert.Equal(s, want[i].Sub, got.Sub)
		assert.Equal(s, want[i].Event, got.Event)
		assert.Equal(s, want[i].Payload, got.Payload)
		require.Len(s, got.Filters, len(want[i].Filters))
		for j, f := range got.Filters {
			assert.JSONEq(s, want[i].Filters[j].String(), f.String())
		}
	}
}

func checkLive(s *suite) {
	key := NewCheapKey("live")
	c := s.dial()
	live := reqAll("live")
	live.Filters[0].LimitZero = true
	s.send(c, live)
	require.Equal(s, wire.TypeEOSE, s.receive(c).Type)
	got := s.background(func() error {
		for i := range 3 {
			m, err := c.Receive(s.ctx)
			if err != nil {
				return err
			}
			if m.Event.IsZero() || m.Event.Content != fmt.Sprint(i) {
				return fmt.Errorf("event %d: %v", i, m)
			}
		}
		return nil
	})
	for i := range 3 {
		s.relay.Publish(key.Event(10, 1, fmt.Sprint(i)))
	}
	require.NoError(s, got())
}

func checkOwnership(s *suite) {
	ev := NewCheapKey("ownership").Event(10, 1, "x", nostr.Tag{"t", "mine"})
	s.relay.Publish(ev)
	c := s.dial()
	for i := range 2 {
		req := reqAll(fmt.Sprint("s", i))
		s.send(c, req)
		req.Filters[0].Kinds[0] = 99 // after Send the caller may change the Request
		m := s.receive(c)
		require.Equal(s, wire.TypeEvent, m.Type)
		require.Equal(s, "mine", m.Event.Tags[0][1], "what the caller changed came back")
		m.Event.Tags[0][1] = "changed"
		require.Equal(s, wire.TypeEOSE, s.receive(c).Type)
	}
}

func checkMalformed(s *suite) {
	s.relay.Update(func(b *Behavior) {
		b.OnConnect = func(c *ConnScript) {
			for _, text := range []string{`["EVENT","`, ``, `{}`, `["EVENT"]`, `[1,2]`, `["NEG-MSG","x","zz"]`, "\xff\xfe"} {
				c.Raw([]byte(text))
			}
			c.Send(wire.Message{Type: wire.TypeNotice, Text: "still here"})
		}
	})
	c := s.dial()
	assert.Equal(s, "still here", s.receive(c).Text)
}

func checkSkim(s *suite) {
	key := NewKey("skim")
	stale, fresh := key.Event(1000, 1, "stale", nostr.Tag{"t", "x"}), key.Event(1001, 1, "fresh")
	s.relay.Publish(stale, fresh)
	c := s.dial()
	skimmer, ok := c.(relaysync.Skimmer)
	if !ok {
		s.Skip("it reads all")
	}
	skimmer.Skim(func(id graspsync.EventID) bool { return id == eventtest.Of(stale).ID })
	s.send(c, reqAll("one"))
	m := s.receive(c)
	assert.False(s, m.Known)
	assert.Equal(s, fresh, m.Event.Event)
	m = s.receive(c)
	assert.True(s, m.Known)
	assert.Equal(s, "one", m.Sub)
	assert.Equal(s, eventtest.Of(stale).ID, m.Event.ID)
	assert.Equal(s, &nostr.Event{ID: stale.ID, PubKey: stale.PubKey, CreatedAt: 1000, Kind: 1}, m.Event.Event)
	assert.Equal(s, wire.TypeEOSE, s.receive(c).Type)
}
