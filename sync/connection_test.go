package sync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// A relay that was down at the first attempt was never tried again.
func TestTrapT1_DownAtFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{Down: true})
		b := net.Add("wss://b.example", relaytest.Behavior{Down: true})
		r, owner := hosted(t, net, relaysync.Config{Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://b.example")}}, "a.example")
		defer r.stop()
		after(3 * time.Hour)
		require.Greater(t, len(a.Dials()), 10)
		require.Greater(t, len(b.Dials()), 10)
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		a.Publish(issue)
		a.SetDown(false)
		after(70 * time.Minute)
		require.True(t, r.has(issue))
	})
}

// A rate limit stopped all requests permanently (T3), or lost requests (T4).
func TestTrapT3T4_RateLimit(t *testing.T) {
	for _, notice := range []bool{false, true} {
		t.Run(fmt.Sprint("notice=", notice), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{RateLimit: 3, RateLimitNotice: notice, Negentropy: relaytest.NegNotice})
				r, owner := hosted(t, net, relaysync.Config{}, "a.example")
				defer r.stop()
				var issues []*nostr.Event
				for i := range 5 {
					issues = append(issues, owner.Issue(at(time.Duration(i+1)*time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
				}
				a.Publish(issues...)
				after(20 * time.Second)
				require.Equal(t, "rate limited", strings.ReplaceAll(r.relay("wss://a.example").Health, "-", " "))
				live := owner.Issue(at(0), owner.Ref("repo"), "live goes on")
				a.Publish(live)
				after(time.Second)
				require.True(t, r.has(live))
				after(2 * time.Hour)
				for _, ev := range issues {
					require.True(t, r.has(ev))
				}
				require.Equal(t, 1, len(a.Dials()))
			})
		})
	}
}

// A lock held during dials let dead relays delay all others.
func TestTrapT5_DeadRelaysDelayNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		var hosts []string
		for i := range 15 {
			hosts = append(hosts, fmt.Sprintf("dead%d.example", i))
			net.Add("wss://"+hosts[i], relaytest.Behavior{NoAnswer: true})
		}
		alive := net.Add("wss://alive.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, append(hosts[:14], "alive.example")...)
		defer r.stop()
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		alive.Publish(issue)
		after(25 * time.Second) // at most two rounds of ten attempts of 10 s
		require.True(t, r.has(issue))
	})
}

// The since of a quick reconnect was 1970 or the time of connecting (T7), and only layer 1 was
// caught up (T8).
func TestTrapT7T8_QuickReconnect(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		old := owner.Issue(at(2*time.Hour), owner.Ref("repo"), "old")
		a.Publish(old)
		after(10 * time.Minute)
		before := len(a.Requests(wire.TypeReq, wire.TypeNegOpen))

		lostAt := time.Now()
		a.SetDown(true)
		after(5 * time.Minute)
		issue := owner.Issue(at(2*time.Minute), owner.Ref("repo"), "made meanwhile")
		comment := owner.Comment(at(time.Minute), old, "this too")
		state := owner.State(at(30*time.Minute), "repo", nil, "") // served when its git data had come
		a.Publish(issue, comment, state)
		a.SetDown(false)
		after(2 * time.Minute)
		for _, ev := range []*nostr.Event{issue, comment, state} {
			require.True(t, r.has(ev), ev.Kind)
		}
		historic := 0
		for _, req := range a.Requests(wire.TypeReq, wire.TypeNegOpen)[before:] {
			f := req.Request.Filters[0]
			if f.LimitZero || f.IDs != nil || f.Since == nil {
				continue // live, or the first history of a new repository
			}
			historic++
			gap := lostAt.Sub(f.Since.Time())
			require.Greater(t, gap, 44*time.Minute)
			require.Less(t, gap, 48*time.Minute)
		}
		require.GreaterOrEqual(t, historic, 8, "all three layers")
	})
}

// The number of live subscriptions grew with each reconnect, and two layers both reconnected.
func TestTrapT9_LiveDoesNotAccumulate(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, a *relaytest.Relay, _ *relaytest.Key) {
		after(2 * time.Minute)
		live := r.relay("wss://a.example").LiveSubscriptions
		for range 20 {
			a.Cut()
			after(2 * time.Minute)
			require.Equal(t, 1, a.Open())
			require.Equal(t, live, r.relay("wss://a.example").LiveSubscriptions)
			require.Len(t, a.Subscriptions(), live)
		}
		require.Equal(t, 21, len(a.Dials()))
	})
}
