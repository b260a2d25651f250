package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// P27: an event that a relay announces and does not serve is requested from another relay of the
// same repository, and not repeatedly.
func TestPromiseP27_UnservedAskedElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{LyingNegentropy: 3})
		b := net.Add("wss://b.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
		defer r.stop()
		a.Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), "x"))
		asked := func() (n int) {
			for _, req := range b.Requests(wire.TypeReq) {
				for _, f := range req.Request.Filters {
					n += len(f.IDs)
				}
			}
			return n
		}
		after(10 * time.Minute)
		first := asked()
		require.GreaterOrEqual(t, first, 3)
		after(3 * time.Hour)
		require.Equal(t, first, asked())
		require.Equal(t, "live", r.relay("wss://b.example").Phase)
	})
}

// P28: a relay that accepts five subscriptions is still followed completely, and its history is
// still fetched.
func TestPromiseP28_FewSubscriptions(t *testing.T) {
	following(t, relaytest.Behavior{MaxSubs: 5, MaxFilters: 3, Info: wire.Info{MaxFilters: 3}}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		var issues []*nostr.Event
		for i := range 450 {
			issues = append(issues, owner.Issue(at(time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
		}
		a.Publish(issues...)
		after(20 * time.Minute)
		require.True(t, r.relay("wss://a.example").Synced)
		var comments []*nostr.Event
		for i, issue := range issues {
			if i%10 == 0 {
				comments = append(comments, owner.Comment(at(0), issue, "now"))
			}
		}
		a.Publish(comments...)
		after(15 * time.Minute)
		for _, c := range comments {
			require.True(t, r.has(c))
		}
		s := r.relay("wss://a.example")
		require.NotZero(t, s.Unfollowed)
		require.LessOrEqual(t, s.LiveSubscriptions, 4)
		requests := len(a.Requests(wire.TypeReq))
		after(time.Hour)
		require.Less(t, len(a.Requests(wire.TypeReq))-requests, 360, "it is asked over and over, and once more where something came in the last 45 minutes")
	})
}
