package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Without a deadline, a batch without EOSE was in flight forever.
func TestTrapT6_NeverEOSE(t *testing.T) {
	following(t, relaytest.Behavior{NeverEOSE: true, Negentropy: relaytest.NegSilent}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		a.Publish(issue)
		after(3 * time.Minute)
		s := r.relay("wss://a.example")
		for range 12 { // each retry makes it syncing again
			if s.Phase == "live with gaps" {
				break
			}
			after(10 * time.Second)
			s = r.relay("wss://a.example")
		}
		require.True(t, r.has(issue), "what came is kept")
		require.Equal(t, "live with gaps", s.Phase)
		require.Contains(t, s.LastError, "no answer in time")
		require.Equal(t, uint64(1), s.Connects, "it fails the batch, not the connection")
		a.Update(func(b *relaytest.Behavior) { b.NeverEOSE = false })
		after(2 * time.Hour)
		s = r.relay("wss://a.example")
		require.Equal(t, 3, s.Wanted)
		require.Equal(t, 3, s.Confirmed)
	})
}

// Pages were counted after the policy, so that a page of foreign events ended the paging (H1), and
// after deduplication by a library (H2).
func TestTrapH1H2_CountedAtTheWire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{Cap: 10, Negentropy: relaytest.NegNotice})
		b := net.Add("wss://b.example", relaytest.Behavior{Cap: 10, Negentropy: relaytest.NegNotice})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
		defer r.stop()
		stranger := relaytest.NewCheapKey("stranger")
		for i := range 60 {
			foreign := stranger.Hosted(at(time.Duration(i)*time.Minute), fmt.Sprint("foreign", i), "elsewhere.example")
			a.Publish(foreign)
			b.Publish(foreign)
		}
		state := owner.State(at(20*time.Hour), "repo", nil, "")
		a.Publish(state)
		b.Publish(state)
		after(2 * time.Minute)
		require.True(t, r.has(state))
		require.Zero(t, r.relay("wss://b.example").Gaps)
		require.GreaterOrEqual(t, r.relay("wss://b.example").Events, uint64(61))
	})
}

// Negentropy with an empty local set downloaded everything on every sync.
func TestTrapH3_SecondSyncIsCheap(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		const before = 4 * 365 * 24 * time.Hour // older than what an audit fetches again
		for i := range 200 {
			a.Publish(owner.Issue(at(before+time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
		}
		after(2 * time.Minute)
		first := r.relay("wss://a.example").Events
		require.GreaterOrEqual(t, first, uint64(200))
		a.SetDown(true)
		after(20 * time.Minute)
		a.SetDown(false)
		after(20 * time.Minute)
		require.Equal(t, uint64(2), r.relay("wss://a.example").Connects)
		require.Equal(t, first, r.relay("wss://a.example").Events, "not one event came again")
	})
}

// A failed reconciliation counted as a successful one without events.
func TestTrapH6_LyingNegentropy(t *testing.T) {
	following(t, relaytest.Behavior{LyingNegentropy: 3}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		a.Publish(issue)
		after(5 * time.Minute)
		require.True(t, r.has(issue))
		s := r.relay("wss://a.example")
		require.Equal(t, "live with gaps", s.Phase)
		require.NotZero(t, s.Unserved)
		requests := len(a.Requests())
		after(time.Hour)
		require.Len(t, a.Requests(), requests, "it is not asked over and over")
	})
}
