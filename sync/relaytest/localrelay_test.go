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

func at(ago time.Duration) nostr.Timestamp { return nostr.Timestamp(time.Now().Add(-ago).Unix()) }
