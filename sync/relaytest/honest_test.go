package relaytest_test

import (
	"testing"
	"testing/synctest"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

var alice = relaytest.NewCheapKey("alice")

func TestStoredEventsNewestFirst(t *testing.T) {
	r := relay(relaytest.Behavior{})
	same := []*nostr.Event{alice.Event(5, 1, "a"), alice.Event(5, 1, "b"), alice.Event(5, 1, "c")}
	r.Publish(notes(alice, 1, 3)...)
	r.Publish(same...)
	r.Publish(alice.Event(9, 2, "other kind"))
	c := connect(t, r)
	c.req(kind1)
	var got []*nostr.Event
	for {
		m := c.receive()
		if m.Type == wire.TypeEOSE {
			break
		}
		got = append(got, m.Event.Event)
	}
	require.Len(t, got, 6)
	for i := range got[1:] {
		a, b := got[i], got[i+1]
		ordered := a.CreatedAt > b.CreatedAt || a.CreatedAt == b.CreatedAt && a.ID < b.ID
		assert.True(t, ordered, "%d", i)
	}
}

func TestLiveEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := relay(relaytest.Behavior{})
		r.Publish(notes(alice, 1, 1)...)
		c := connect(t, r)
		c.req(kind1)
		c.req(limit(0), nostr.Filter{Kinds: []int{2}, LimitZero: true})
		assert.Equal(t, []string{"s1 1", "s1 EOSE", "s2 EOSE"}, c.script(3))
		r.Publish(notes(alice, 2, 1)...)
		r.Publish(notes(alice, 2, 1)...) // a duplicate is not sent
		r.Publish(alice.Event(3, 3, "unwanted"), alice.Event(3, 2, "two"))
		assert.Equal(t, []string{"s1 2", "s2 2", "s2 two"}, c.script(3))
		c.send(wire.Request{Type: wire.TypeClose, Sub: "s2"})
		r.Publish(notes(alice, 4, 1)...)
		assert.Equal(t, []string{"s1 4"}, c.rest())
	})
}
