package sync_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// hangsUp is a relay that disconnects without a message after a request of some form.
func hangsUp(over func(req wire.Request) bool) (b relaytest.Behavior, times func() int) {
	var n atomic.Int64
	b.Handle = func(c *relaytest.ConnScript, req wire.Request) bool {
		if !over(req) {
			return false
		}
		n.Add(1)
		c.Cut()
		return true
	}
	return b, func() int { return int(n.Load()) }
}

// A relay that disconnects instead of answering a NEG-OPEN got it again and again until it was dead,
// and its events were never fetched.
func TestHangingUpOverNegentropyIsARefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		b, times := hangsUp(func(req wire.Request) bool { return req.Type == wire.TypeNegOpen })
		a := net.Add("wss://a.example", b)
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.end()
		var issues []*nostr.Event
		for i := range 100 {
			issues = append(issues, owner.Issue(at(time.Duration(i+3)*time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
		}
		a.Publish(issues...)
		after(23 * time.Hour)
		for _, ev := range issues {
			require.True(t, r.has(ev))
		}
		require.Equal(t, "live", r.relay("wss://a.example").Phase)
		require.Less(t, times(), 30)
		live := owner.Issue(at(0), owner.Ref("repo"), "live")
		a.Publish(live)
		after(time.Minute)
		require.True(t, r.has(live))
	})
}

// A single lost connection teaches no limit, because networks lose connections by chance.
func TestOneLostConnectionTeachesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		var n atomic.Int64
		b, times := hangsUp(func(req wire.Request) bool { return req.Type == wire.TypeNegOpen && n.Add(1) == 1 })
		net.Add("wss://a.example", b)
		r, _ := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.end()
		after(10 * time.Minute)
		require.Equal(t, 1, times())
		require.Empty(t, r.relay("wss://a.example").Learned)
		require.Equal(t, "live", r.relay("wss://a.example").Phase)
	})
}

// A relay that disconnects after every request does not count as one that refuses every form. It is
// tried again, and used as soon as it answers.
func TestHangingUpOverEverythingIsNoRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		var repaired atomic.Bool
		b, times := hangsUp(func(wire.Request) bool { return !repaired.Load() })
		a := net.Add("wss://a.example", b)
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.end()
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		a.Publish(issue)
		after(20 * time.Hour)
		s := r.relay("wss://a.example")
		require.EqualValues(t, s.Connects, times(), "each time it is asked for something")
		require.Greater(t, times(), 20)
		require.Empty(t, s.Learned)
		repaired.Store(true)
		after(2 * time.Hour)
		require.True(t, r.has(issue))
		require.Equal(t, "live", r.relay("wss://a.example").Phase)
		require.NotContains(t, r.relay("wss://a.example").Learned, "no_negentropy")
	})
}
