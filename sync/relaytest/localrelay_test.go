package relaytest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// last receives n messages and returns the last one as text.
func (c *client) last(n int) string {
	c.Helper()
	all := c.script(n)
	return all[n-1]
}

// sized returns a filter whose REQ has size bytes.
func sized(t *testing.T, sub string, size int) nostr.Filter {
	t.Helper()
	empty := len(`["REQ","",{"search":""}]`) + len(sub)
	require.Greater(t, size, empty)
	return nostr.Filter{Search: strings.Repeat("x", size-empty)}
}

// open sends n REQs for live events and receives their EOSE.
func (c *client) open(n int) {
	c.Helper()
	for range n {
		id := c.req(limit(0))
		require.Equal(c, id+" EOSE", render(c.receive()))
	}
}

// neg opens a NEG session for events of kind 1 with an empty set.
func (c *client) neg(id string) {
	c.Helper()
	payload := []byte{0x61, 0, 0, 2, 0} // all times, no ids
	c.send(wire.Request{Type: wire.TypeNegOpen, Sub: id, Filters: []nostr.Filter{kind1}, Payload: payload})
}

func TestLocalRelaySubscriptions(t *testing.T) {
	c := connect(t, relay(relaytest.LocalRelay()))
	c.open(500)
	c.req(limit(0))
	assert.Equal(t, "s501 CLOSED rate-limited: too many REQs", render(c.receive()))
	c.send(wire.Request{Type: wire.TypeClose, Sub: "s1"})
	c.req(limit(0))
	assert.Equal(t, "s502 EOSE", render(c.receive()))
}

func TestLocalRelayFilters(t *testing.T) {
	r := relay(relaytest.LocalRelay())
	c := connect(t, r)
	many := make([]nostr.Filter, 21)
	for i := range many {
		many[i] = limit(0)
	}
	c.req(many[:20]...)
	c.req(many...)
	assert.Equal(t, []string{"s1 EOSE", "s2 CLOSED rate-limited: REQ exceeds max filter count 20"}, c.script(2))
	assert.Equal(t, map[string]int{"rate-limited: REQ exceeds max filter count 20": 1}, r.Refusals())
}

func TestLocalRelayResults(t *testing.T) {
	r := relay(relaytest.LocalRelay())
	r.Publish(notes(alice, 1, 501)...)
	c := connect(t, r)
	for _, f := range []nostr.Filter{limit(501), limit(500), kind1} {
		id := c.req(f)
		assert.Equal(t, id+" EOSE", c.last(501))
	}
	// The events of two filters are sorted together.
	c.req(nostr.Filter{Kinds: []int{1}, Until: ts(1)}, nostr.Filter{Kinds: []int{1}, Since: ts(501)})
	assert.Equal(t, []string{"s4 501", "s4 1", "s4 EOSE"}, c.script(3))
}

// A subscription to ids ends when it has received all of them.
func TestLocalRelayIDs(t *testing.T) {
	r := relay(relaytest.LocalRelay())
	two := notes(alice, 1, 2)
	r.Publish(two[0])
	c := connect(t, r)
	c.req(nostr.Filter{IDs: []string{two[0].ID}})
	assert.Equal(t, []string{"s1 1", "s1 EOSE", "s1 CLOSED "}, c.script(3))
	c.req(nostr.Filter{IDs: []string{two[0].ID, two[1].ID}})
	assert.Equal(t, []string{"s2 1", "s2 EOSE"}, c.script(2))
	require.Len(t, r.Subscriptions(), 1)
	assert.Equal(t, "s2", r.Subscriptions()[0].ID)
}

func TestLocalRelayRetainedBytes(t *testing.T) {
	for name, test := range map[string]struct {
		behavior relaytest.Behavior
		most     int
		words    string
	}{
		"rust-nostr": {relaytest.LocalRelay(), 1 << 20, "rate-limited: active subscriptions exceed max size 1048576 bytes"},
		"ngit-grasp": {relaytest.GraspRelay(), 5 << 20, "rate-limited: active subscriptions exceed max size 5242880 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := relay(test.behavior)
			c := connect(t, r)
			half := test.most / 2
			c.req(sized(t, "s1", half))
			c.req(sized(t, "s2", half+1))
			assert.Equal(t, []string{"s1 EOSE", "s2 CLOSED " + test.words}, c.script(2))
			c.req(sized(t, "s3", half))
			assert.Equal(t, "s3 EOSE", render(c.receive()))
			assert.Equal(t, half, r.Requests()[2].Size)
			c.req(limit(0))
			assert.Equal(t, "s4 CLOSED "+test.words, render(c.receive()))
			c.send(wire.Request{Type: wire.TypeClose, Sub: "s1"})
			c.req(limit(0))
			assert.Equal(t, "s5 EOSE", render(c.receive()), "what is closed does not count")
		})
	}
}

func TestLocalRelaySubID(t *testing.T) {
	b := relaytest.LocalRelay()
	b.MaxSubID = 3
	assert.Equal(t, 250, relaytest.LocalRelay().MaxSubID)
	c := connect(t, relay(b))
	for _, id := range []string{"abc", "abcd"} {
		c.send(wire.Request{Type: wire.TypeReq, Sub: id, Filters: []nostr.Filter{limit(0)}})
	}
	c.neg("abcd")
	assert.Equal(t, []string{
		"abc EOSE",
		"abcd CLOSED blocked: subscription ID exceeds max length 3",
		"abcd NEG-ERR blocked: subscription ID exceeds max length 3 0",
	}, c.script(3))
}

func TestLocalRelayMessageSize(t *testing.T) {
	b := relaytest.LocalRelay()
	b.Info.MaxMessageLength = 0 // a relay that does not publish it
	b.MaxSubBytes = 0
	c := connect(t, relay(b))
	c.req(sized(t, "s1", 5<<20))
	assert.Equal(t, "s1 EOSE", render(c.receive()))
	c.req(sized(t, "s2", 5<<20+1))
	_, err := c.Receive(t.Context())
	assert.ErrorIs(t, err, relaysync.ErrClosed)
}

func TestLocalRelayEventSize(t *testing.T) {
	for name, test := range map[string]struct {
		behavior relaytest.Behavior
		most     int
	}{
		"rust-nostr": {relaytest.LocalRelay(), 65_536},
		"ngit-grasp": {relaytest.GraspRelay(), 196_608},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, relay(test.behavior))
			empty := len(alice.Event(1, 1, "").String())
			for extra := range 2 {
				ev := alice.Event(1, 1, strings.Repeat("x", test.most-empty+extra))
				c.send(wire.Request{Type: wire.TypePublish, Event: ev})
			}
			assert.Equal(t, []string{
				"OK true ",
				fmt.Sprintf("OK false blocked: event size (%d bytes) exceeds maximum allowed size (%d bytes)", test.most+1, test.most),
			}, c.script(2))
		})
	}
}

func TestLocalRelayPublish(t *testing.T) {
	c := connect(t, relay(relaytest.LocalRelay()))
	ev := alice.Event(1, 1, "hello")
	wrong := *ev
	wrong.Content = "other"
	unsigned := *ev
	unsigned.Sig = strings.Repeat("ab", 64)
	deletion := alice.Deletion(2, ev)
	for _, ev := range []*nostr.Event{ev, ev, &wrong, &unsigned, deletion, ev} {
		c.send(wire.Request{Type: wire.TypePublish, Event: ev})
	}
	assert.Equal(t, []string{
		"OK true ",
		"OK true duplicate: already have this event",
		"OK false invalid: invalid event ID",
		"OK false invalid: invalid event signature",
		"OK true ",
		"OK false blocked: this event is deleted",
	}, c.script(6))
}

// Each quota is per minute and returns by whole seconds without an attempt.
func TestLocalRelayQuotas(t *testing.T) {
	query := func(c *client) string {
		id := c.req(limit(0))
		answer := render(c.receive())
		c.send(wire.Request{Type: wire.TypeClose, Sub: id})
		return answer
	}
	publish := alice.Event(1, 1, "hello")
	auth := alice.Event(1, 22242, "")
	for _, test := range []struct {
		name   string
		change func(b *relaytest.Behavior)
		most   int
		ask    func(c *client) string
		words  string
	}{
		{"queries", nil, 1200, query, "CLOSED rate-limited: too many queries"},
		{"queries of before 0.45.2", func(b *relaytest.Behavior) { b.RateLimit = 120 }, 120, query, "CLOSED rate-limited: too many queries"},
		{"NEG-OPEN", nil, 1200, func(c *client) string {
			c.neg("n")
			return render(c.receive())
		}, "NEG-ERR rate-limited: too many queries 0"},
		{"NEG-MSG", nil, 1200, func(c *client) string {
			c.send(wire.Request{Type: wire.TypeNegSend, Sub: "n", Payload: []byte{0x61}})
			return render(c.receive())
		}, "NEG-ERR rate-limited: too many queries 0"},
		{"EVENT", nil, 60, func(c *client) string {
			c.send(wire.Request{Type: wire.TypePublish, Event: publish})
			return render(c.receive())
		}, "OK false rate-limited: slow down"},
		{"AUTH", nil, 30, func(c *client) string {
			c.send(wire.Request{Type: wire.TypeAnswer, Event: auth})
			return render(c.receive())
		}, "OK false rate-limited: too many authentication attempts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := relaytest.LocalRelay()
				b.MessageRate = 0
				if test.change != nil {
					test.change(&b)
				}
				c := connect(t, relay(b))
				if test.name == "NEG-MSG" {
					c.neg("n")
					c.receive()
				}
				// once returns the message if it is a refusal.
				once := func() string {
					if m := test.ask(c); strings.Contains(m, "rate-limited") {
						return m
					}
					return ""
				}
				for i := range test.most {
					require.Empty(t, once(), i)
				}
				assert.Contains(t, once(), test.words)
				for range 100 { // more than once a second returns no quota
					time.Sleep(999 * time.Millisecond)
					require.Contains(t, once(), test.words)
				}
				time.Sleep(30*time.Second + time.Second/2)
				for i := range test.most / 2 {
					require.Empty(t, once(), i)
				}
				assert.Contains(t, once(), test.words)
				time.Sleep(time.Hour)
				for i := range test.most {
					require.Empty(t, once(), i)
				}
				assert.Contains(t, once(), test.words)
			})
		})
	}
}

// Too many messages of any type end the connection without a message.
func TestLocalRelayMessages(t *testing.T) {
	c := connect(t, relay(relaytest.LocalRelay()))
	for range 6000 {
		c.send(wire.Request{Type: wire.TypeClose, Sub: "x"})
	}
	require.NoError(t, c.Send(t.Context(), wire.Request{Type: wire.TypeClose, Sub: "x"}))
	_, err := c.Receive(t.Context())
	require.ErrorIs(t, err, relaysync.ErrClosed)
	assert.ErrorContains(t, err, "too many messages")

	c = connect(t, relay(relaytest.LocalRelay()))
	for range 6000 {
		require.NoError(t, c.SendText(t.Context(), []byte("nonsense")))
		require.Equal(t, "NOTICE invalid client message", render(c.receive()))
	}
	require.NoError(t, c.SendText(t.Context(), []byte("nonsense")))
	<-c.Done()
}

func TestLocalRelayNegSessions(t *testing.T) {
	r := relay(relaytest.LocalRelay())
	r.Publish(notes(alice, 1, 3)...)
	c := connect(t, r)
	for i := range 10 {
		c.neg(fmt.Sprint(i))
		require.Contains(t, render(c.receive()), "NEG-MSG")
	}
	c.neg("10")
	assert.Equal(t, "10 NEG-ERR rate-limited: too many negentropy subscriptions 0", render(c.receive()))
	c.neg("9")
	assert.Contains(t, render(c.receive()), "9 NEG-MSG", "the same id again")
	c.send(wire.Request{Type: wire.TypeNegSend, Sub: "x", Payload: []byte{0x61}})
	assert.Equal(t, "x NEG-ERR error: subscription not found 0", render(c.receive()))
	c.send(wire.Request{Type: wire.TypeNegSend, Sub: "1", Payload: []byte{0x61, 0xff}})
	assert.Equal(t, "1 NEG-ERR error: invalid negentropy message 0", render(c.receive()))
	c.neg("10")
	assert.Contains(t, render(c.receive()), "10 NEG-MSG", "the failed one is gone")
}

// The records of all open sessions count together.
func TestLocalRelayNegItems(t *testing.T) {
	assert.Equal(t, 50_000, relaytest.LocalRelay().NegMax)
	b := relaytest.LocalRelay()
	b.NegMax = 6
	r := relay(b)
	r.Publish(notes(alice, 1, 3)...)
	c := connect(t, r)
	c.neg("a")
	c.neg("b")
	c.neg("c")
	c.receive()
	assert.Contains(t, render(c.receive()), "b NEG-MSG")
	assert.Equal(t, "c NEG-ERR rate-limited: too many negentropy items 0", render(c.receive()))
	c.send(wire.Request{Type: wire.TypeNegClose, Sub: "a"})
	c.neg("d")
	assert.Contains(t, render(c.receive()), "d NEG-MSG")
	r.Publish(notes(alice, 4, 4)...)
	c.send(wire.Request{Type: wire.TypeNegClose, Sub: "b"})
	c.send(wire.Request{Type: wire.TypeNegClose, Sub: "d"})
	c.neg("e")
	assert.Equal(t, "e NEG-ERR rate-limited: too many negentropy items 0", render(c.receive()))
}

func TestLocalRelayNegFrame(t *testing.T) {
	key := relaytest.NewCheapKey("many")
	r := relay(relaytest.LocalRelay())
	r.Publish(notes(key, 1, 3000)...)
	c := connect(t, r)
	c.neg("n")
	m := c.receive()
	assert.LessOrEqual(t, len(m.Payload), 60_000)
	assert.Greater(t, len(m.Payload), 55_000)
}

func TestLocalRelayAuth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := relaytest.LocalRelay()
		b.Auth = relaytest.AuthRequired
		c := connect(t, relay(b))
		c.req(kind1)
		c.neg("n")
		assert.Equal(t, []string{
			"AUTH challenge-1", "s1 CLOSED auth-required: you must auth",
			"AUTH challenge-2", "n NEG-ERR auth-required: you must auth 0",
		}, c.script(4), "no challenge before, and each time a new one")
		answer := func(kind int, challenge, url string, ago time.Duration) *nostr.Event {
			return alice.Event(at(ago), kind, "", nostr.Tag{"challenge", challenge}, nostr.Tag{"relay", url})
		}
		for _, test := range []struct {
			ev    *nostr.Event
			words string
		}{
			{answer(1, "challenge-1", "wss://a.example", 0), "OK false auth-required: invalid authentication event kind"},
			{answer(22242, "challenge-9", "wss://a.example", 0), "OK false auth-required: received invalid challenge"},
			{answer(22242, "challenge-1", "wss://b.example", 0), "OK false auth-required: invalid authentication event"},
			{answer(22242, "challenge-1", "wss://a.example", 121*time.Second), "OK false auth-required: challenge is too old (max allowed 2 min)"},
			{answer(22242, "challenge-1", "wss://a.example", 120*time.Second), "OK true "},
		} {
			c.send(wire.Request{Type: wire.TypeAnswer, Event: test.ev})
			assert.Equal(t, test.words, render(c.receive()))
		}
		c.req(kind1)
		assert.Equal(t, "s2 EOSE", render(c.receive()))
	})
}

// A slow reader loses waiting live events and all subscriptions.
func TestLocalRelayLiveOverflow(t *testing.T) {
	key := relaytest.NewCheapKey("author")
	for _, n := range []int{1024, 1025} {
		r := relay(relaytest.LocalRelay())
		c := connect(t, r)
		c.open(2)
		r.Publish(notes(key, 1, n)...)
		if n == 1024 {
			assert.Equal(t, "s2 1024", c.last(2048))
			continue
		}
		assert.Equal(t, []string{
			"s1 CLOSED error: live event buffer overflow; resubscribe to recover stored events",
			"s2 CLOSED error: live event buffer overflow; resubscribe to recover stored events",
		}, c.script(2))
		assert.Empty(t, r.Subscriptions())
		c.open(1)
		r.Publish(notes(key, 2000, 1)...)
		assert.Equal(t, "s3 2000", render(c.receive()))
	}
}

// The limits in NIP-11, and the missing ones.
func TestLocalRelayInfo(t *testing.T) {
	for _, b := range []relaytest.Behavior{relaytest.LocalRelay(), relaytest.GraspRelay()} {
		assert.Equal(t, 500, b.Info.MaxSubscriptions)
		assert.Equal(t, 500, b.Info.MaxLimit)
		assert.Equal(t, 5<<20, b.Info.MaxMessageLength)
		assert.Equal(t, 250, b.Info.MaxSubIDLength)
		assert.Zero(t, b.Info.MaxFilters)
	}
}

func at(ago time.Duration) nostr.Timestamp { return nostr.Timestamp(time.Now().Add(-ago).Unix()) }
