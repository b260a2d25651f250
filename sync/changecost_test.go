package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// sentSince counts the messages that a relay received from us since a moment.
type sentSince struct{ reqs, closes, negs, bytes int }

func sentTo(relay *relaytest.Relay, before int) (s sentSince) {
	for _, r := range relay.Requests()[before:] {
		s.bytes += r.Size
		switch r.Type {
		case wire.TypeReq:
			s.reqs++
		case wire.TypeClose:
			s.closes++
		case wire.TypeNegOpen:
			s.negs++
		}
	}
	return s
}

// One deleted issue caused every live filter of every relay of the repository to be replaced and
// all history to be requested again: 600 KB and 95 requests per relay. The same happened when a
// repository removed a relay, when an event was removed from the Store, and when the relay closed a
// live subscription.
func TestCostFollowsTheChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const issues = 3_000
		net := relaytest.NewNetwork()
		relays := []*relaytest.Relay{net.Add("wss://a.example", relaytest.Behavior{MaxSubs: 20}), net.Add("wss://b.example", relaytest.Behavior{})}
		r, owner := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
		defer r.stop()
		stranger := relaytest.NewCheapKey("stranger")
		small := owner.Hosted(at(24*time.Hour), "small", us, "b.example") // keeps b followed when the other repository removes it
		r.save(small)
		var all []*nostr.Event
		for i := range issues {
			all = append(all, owner.Issue(at(time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
		}
		for _, relay := range relays {
			relay.Publish(all...)
		}
		after(20 * time.Minute)
		full := sentTo(relays[0], 0)
		require.True(t, r.manager.Status().Synced)
		require.Equal(t, issues, r.manager.Status().Roots)

		// happens returns the messages to each relay within ten minutes after a change.
		happens := func(what string, do func(), most sentSince) {
			t.Helper()
			var before []int
			for _, relay := range relays {
				before = append(before, len(relay.Requests()))
			}
			do()
			after(10 * time.Minute)
			for i, relay := range relays {
				got := sentTo(relay, before[i])
				t.Logf("%s: to %s %d REQ, %d CLOSE, %d NEG-OPEN, %d bytes (all: %d bytes)", what, relay.URL(), got.reqs, got.closes, got.negs, got.bytes, full.bytes)
				require.LessOrEqual(t, got.reqs, most.reqs, what)
				require.LessOrEqual(t, got.closes, most.closes, what)
				require.LessOrEqual(t, got.negs, most.negs, what)
				require.LessOrEqual(t, got.bytes, most.bytes, what)
			}
			require.True(t, r.manager.Status().Synced, what)
		}
		happens("one deleted", func() { r.save(owner.Deletion(at(0), all[7])) }, sentSince{})
		happens("one expired here", func() { r.manager.NotifyRemoved(eventtest.Of(all[8])) }, sentSince{})
		happens("twelve posted and deleted", func() {
			for i := range 12 {
				ev := stranger.Issue(at(0), owner.Ref("repo"), fmt.Sprint("spam", i))
				relays[0].Publish(ev)
				after(6 * time.Second)
				relays[0].Publish(stranger.Deletion(at(0), ev))
				after(6 * time.Second)
			}
		}, sentSince{reqs: 24, closes: 24, negs: 48, bytes: 12_000})
		happens("a relay leaves", func() {
			r.save(owner.Hosted(at(0), "repo", us, "a.example"))
		}, sentSince{reqs: 1, closes: 20, bytes: 1_000})
		require.Equal(t, "live", r.relay("wss://b.example").Phase)
		require.Less(t, r.relay("wss://b.example").LiveFilters, 20, "what the relay was left with is all it is asked for")
		happens("a subscription is closed", func() {
			ours := relays[0].Subscriptions()
			last := ours[len(ours)-1]
			relays[0].Broadcast(wire.Message{Type: wire.TypeClosed, Sub: last.ID, Text: "error: too slow"})
		}, sentSince{reqs: 30, closes: 30, negs: 30, bytes: full.bytes / 3})
		comment := owner.Comment(at(0), all[9], "still followed")
		relays[0].Publish(comment)
		after(time.Minute)
		require.True(t, r.has(comment))
		for _, relay := range relays {
			require.Empty(t, relay.Violations())
			require.Zero(t, r.relay(relay.URL().String()).Learned["max_subscriptions"], "it was never asked for more than it takes")
		}
	})
}
