package relaytest_test

import (
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
	c := connect(t, relay(relaytest.LocalRelay()))
	many := make([]nostr.Filter, 21)
	for i := range many {
		many[i] = limit(0)
	}
	c.req(many[:20]...)
	c.req(many...)
	assert.Equal(t, []string{"s1 EOSE", "s2 CLOSED rate-limited: REQ exceeds max filter count 20"}, c.script(2))
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
			{answer(22242, "challenge-1", "wss://a.example", 121*time.Second), "OK false auth-required: challenge is too old"},
			{answer(22242, "challenge-1", "wss://a.example", 120*time.Second), "OK true "},
		} {
			c.send(wire.Request{Type: wire.TypeAnswer, Event: test.ev})
			assert.Equal(t, test.words, render(c.receive()))
		}
		c.req(kind1)
		assert.Equal(t, "s2 EOSE", render(c.receive()))
	})
}

func at(ago time.Duration) nostr.Timestamp { return nostr.Timestamp(time.Now().Add(-ago).Unix()) }
