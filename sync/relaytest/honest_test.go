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

func TestReplaceable(t *testing.T) {
	state := func(at nostr.Timestamp, text string) *nostr.Event {
		return alice.Event(at, 30618, text, nostr.Tag{"d", "x"})
	}
	a, b := state(5, "a"), state(5, "b")
	low, high := a, b
	if low.ID > high.ID {
		low, high = b, a
	}
	for _, test := range []struct {
		name string
		in   []*nostr.Event
		want *nostr.Event
	}{
		{"newer wins", []*nostr.Event{state(1, "old"), state(2, "new")}, state(2, "new")},
		{"older is refused", []*nostr.Event{state(2, "new"), state(1, "old")}, state(2, "new")},
		{"tie, low last", []*nostr.Event{high, low}, low},
		{"tie, low first", []*nostr.Event{low, high}, low},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := relay(relaytest.Behavior{})
			r.Publish(test.in...)
			require.Len(t, r.Events(), 1)
			assert.Equal(t, test.want.ID, r.Events()[0].ID)
		})
	}
	r := relay(relaytest.Behavior{})
	r.Publish(state(1, ""), alice.Event(1, 30618, "", nostr.Tag{"d", "y"}), alice.Event(1, 10002, ""), alice.Event(2, 0, ""))
	assert.Len(t, r.Events(), 4, "other addresses are other events")
	assert.Zero(t, r.Publish(alice.Event(1, 0, "")))
	assert.Equal(t, 1, r.Publish(alice.Event(2, 20001, "")), "broadcast")
	assert.Len(t, r.Events(), 4, "ephemeral events are not stored")
}

func TestDeletion(t *testing.T) {
	bob := relaytest.NewCheapKey("bob")
	issue := alice.Issue(10, alice.Ref("x"), "issue")
	repo := alice.Hosted(20, "a:b", "grasp.example")
	newer := alice.Hosted(21, "a:b", "grasp.example")
	deletion := alice.Deletion(20, issue, repo)
	for _, order := range [][]*nostr.Event{
		{issue, repo, deletion, newer},
		{deletion, issue, repo, newer},
		{newer, deletion, issue, repo},
		{bob.Deletion(20, issue, repo), alice.Deletion(5, deletion), repo, newer, issue, deletion},
	} {
		r := relay(relaytest.Behavior{})
		r.Publish(order...)
		assert.Empty(t, r.Query(nostr.Filter{Kinds: []int{1621}}))
		left := r.Query(nostr.Filter{Kinds: []int{30617}})
		require.Len(t, left, 1)
		assert.Equal(t, newer.ID, left[0].ID)
		assert.NotEmpty(t, r.Query(nostr.Filter{IDs: []string{deletion.ID}}), "deletions stay")
	}
	r := relay(relaytest.Behavior{})
	r.Publish(issue, repo, bob.Deletion(20, issue, repo))
	assert.Len(t, r.Events(), 3, "only the author deletes")
	r.Remove(issue.ID, "unknown")
	assert.Len(t, r.Events(), 2)
	assert.Equal(t, 1, r.Publish(issue), "what is merely lost may come back")
}
