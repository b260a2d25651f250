package sync_test

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Relays answer newest first, so a state comes before its announcement. It waits until any relay
// delivers the announcement.
func TestStateComesBeforeItsAnnouncement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{Negentropy: relaytest.NegNotice})
		b := net.Add("wss://b.example", relaytest.Behavior{Latency: 20 * time.Second})
		r, _ := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
		defer r.stop()
		bob, carol := relaytest.NewCheapKey("bob"), relaytest.NewCheapKey("carol")
		byOwner := bob.State(at(time.Hour), "two", nil, "")
		byMaintainer := carol.State(at(30*time.Minute), "two", nil, "")
		a.Publish(byOwner, byMaintainer)
		after(15 * time.Second)
		require.Equal(t, int64(2), r.manager.Status().Events.Waiting)
		require.False(t, r.has(byOwner))

		b.Publish(bob.Hosted(at(2*time.Hour), "two", us, "b.example"))
		after(2 * time.Minute)
		require.True(t, r.has(byOwner))
		require.False(t, r.has(byMaintainer), "not a maintainer yet")

		// The same with an announcement that a client submits.
		relays, clones := []string{"wss://" + us}, []string{bob.CloneURL("wss://"+us, "two")}
		r.save(bob.Announcement(at(time.Minute), "two", relays, clones, carol))
		after(time.Second)
		require.False(t, r.has(byMaintainer), "has not agreed yet")
		answer := carol.Announcement(at(time.Minute), "two", []string{"wss://a.example"}, []string{carol.CloneURL("wss://a.example", "two")}, bob)
		a.Publish(answer)
		after(10 * time.Second)
		require.True(t, r.has(answer), "though it does not list us")
		require.True(t, r.has(byMaintainer))
		require.Equal(t, []nip34.Person{
			{Key: bob.PubKey(), Kind: nip34.Root},
			{Key: carol.PubKey(), Kind: nip34.Member, ListedBy: bob.PubKey(), Lists: bob.PubKey()},
		}, r.repo(bob.Ref("two")).Maintainers)
		require.Zero(t, r.manager.Status().Events.Waiting)
	})
}

// The live subscription missed an event that history found: that is a gap.
func TestGapIsCounted(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		after(5 * time.Minute)
		// The relay stores the event and does not send it on the live subscription.
		missed := owner.Issue(at(time.Minute), owner.Ref("repo"), "missed")
		silently(a, missed)
		after(time.Minute)
		require.False(t, r.has(missed))
		after(26 * time.Hour)
		require.True(t, r.has(missed))
		require.Equal(t, uint64(1), r.relay("wss://a.example").Gaps)
		require.Equal(t, uint64(1), r.relay("wss://a.example").Connects)
	})
}

// silently publishes events that the relay does not send on live subscriptions.
func silently(r *relaytest.Relay, events ...*nostr.Event) {
	before := r.Behavior().Latency
	r.Update(func(b *relaytest.Behavior) { b.Latency = 1000 * time.Hour })
	r.Publish(events...)
	r.Update(func(b *relaytest.Behavior) { b.Latency = before })
}
