package sync_test

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// historic returns the requests of a relay for stored events.
func historic(r *relaytest.Relay) (out []relaytest.Seen) {
	for _, seen := range r.Requests(wire.TypeReq, wire.TypeNegOpen) {
		if seen.Request.Type == wire.TypeNegOpen || !seen.Request.Filters[0].LimitZero {
			out = append(out, seen)
		}
	}
	return out
}

// A relay that complained once a minute never got another request: each complaint extended the
// pause, although it concerned earlier requests.
func TestPauseEndsWhenItWasSaidTo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := crowded(t, relaytest.Behavior{RateLimit: 3, Negentropy: relaytest.NegNotice}, relaysync.Config{}, 10)
		defer c.stop()
		after(10 * time.Second)
		until := c.rig.relay("wss://a.example").RateLimitedUntil
		require.Greater(t, time.Until(until), 50*time.Second)
		c.relay.Update(func(b *relaytest.Behavior) { b.RateLimit = 0 })
		for time.Until(until) > time.Second {
			c.relay.Broadcast(wire.Message{Type: wire.TypeNotice, Text: "rate limited"})
			after(10 * time.Second)
			if time.Until(until) > time.Second {
				require.Equal(t, until, c.rig.relay("wss://a.example").RateLimitedUntil)
			}
		}
		after(2 * time.Minute)
		require.Empty(t, c.lacks(c.issues))
		require.Empty(t, c.violations())

		// Another complaint soon afterwards causes a longer pause, which the status shows.
		began := time.Now()
		c.relay.Broadcast(wire.Message{Type: wire.TypeNotice, Text: "rate limited"})
		after(time.Second)
		require.Equal(t, began.Add(130*time.Second), c.rig.relay("wss://a.example").RateLimitedUntil)
		require.Equal(t, "rate limited", c.rig.relay("wss://a.example").Health)
		after(120 * time.Second)
		require.Equal(t, "rate limited", c.rig.relay("wss://a.example").Health)
		// The next pause is longer again, also on another connection.
		after(10 * time.Second)
		c.relay.Cut()
		after(10 * time.Second)
		began = time.Now()
		c.relay.Broadcast(wire.Message{Type: wire.TypeNotice, Text: "rate limited"})
		after(time.Second)
		require.Equal(t, began.Add(260*time.Second), c.rig.relay("wss://a.example").RateLimitedUntil)
	})
}

// A relay that refused a burst got the next burst after 65 s, and so on. Now historic requests are
// sent at its pace, and live requests do not wait.
func TestHistoryIsPacedAfterARefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := relaytest.LocalRelay()
		b.RateLimit, b.Negentropy, b.Info = 20, relaytest.NegNotice, wire.Info{} // 0.45.0 with a sixth of its quota
		b.Cap = 5
		c := crowded(t, b, relaysync.Config{}, 100)
		defer c.stop()
		after(3 * time.Hour)
		require.Empty(t, c.lacks(c.issues))
		require.Empty(t, c.violations())
		status := c.rig.relay("wss://a.example")
		require.Positive(t, status.Learned["pace"])
		require.Equal(t, status.Wanted, status.Confirmed)

		// The pace also applies after a reconnect.
		asked := len(historic(c.relay))
		c.relay.Cut()
		after(time.Minute)
		seen := historic(c.relay)[asked:]
		require.Greater(t, len(seen), 3)
		for i := range seen[1:] {
			require.GreaterOrEqual(t, seen[i+1].At.Sub(seen[i].At), time.Second)
		}

		// Live requests do not wait.
		more := make([]*nostr.Event, 0, 3)
		for _, name := range []string{"x", "y", "z"} {
			more = append(more, c.owner.Hosted(at(time.Minute), name, us, "a.example"))
		}
		c.save(more...)
		after(10 * time.Second)
		issue := c.owner.Issue(at(0), c.owner.Ref("z"), "live")
		c.relay.Publish(issue)
		after(time.Second)
		require.True(t, c.has(issue))
	})
}

// A relay that permanently refuses one request as too frequent blocked all other requests forever.
func TestLimitThatNeverPasses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := relaytest.Behavior{Negentropy: relaytest.NegNotice}
		b.ClosedReason = func(r wire.Request) string {
			for _, f := range r.Filters {
				if len(f.Tags["A"]) > 0 && !f.LimitZero {
					return "rate-limited: we don't like capitals"
				}
			}
			return ""
		}
		c := crowded(t, b, relaysync.Config{}, 20)
		defer c.stop()
		after(4 * time.Hour)
		require.Empty(t, c.lacks(c.issues))
	})
}

// A relay limits the total size of open requests in bytes. That counted as a rate limit: the
// request without room was sent again every 65 s, and no other request.
func TestBytesOfRequestsAreBounded(t *testing.T) {
	racetest.Amounts(t)
	for _, most := range []int{24 << 10, 100 << 10} {
		bubble(t, func(t *testing.T) {
			b := relaytest.LocalRelay()
			b.MaxSubBytes = most
			c := crowded(t, b, relaysync.Config{}, 250)
			defer c.stop()
			after(time.Hour)
			require.Empty(t, c.lacks(c.issues))
			require.Empty(t, c.violations())
			s := c.rig.relay("wss://a.example")
			require.Equal(t, s.Wanted, s.Confirmed)
			require.LessOrEqual(t, s.Learned["max_retained"], most)
			require.Positive(t, s.Learned["max_retained"])
			require.Positive(t, s.Unfollowed)
			require.Zero(t, s.Learned["pace"])
			refused := c.manager.Status().Events.Learned["max_retained"]
			require.Less(t, refused, uint64(10))

			// Followed events arrive immediately, the others within a limited time.
			var news []*nostr.Event
			for i := range 250 {
				news = append(news, c.owner.Issue(at(0), c.owner.Ref(c.names[i]), "new"))
			}
			c.relay.Publish(news...)
			after(time.Minute)
			live := len(news) - len(c.lacks(news))
			require.Positive(t, live)
			after(15 * time.Minute)
			require.Empty(t, c.lacks(news))

			// The limit is known on the next connection and believed for a day.
			closed := c.relay.Requests(wire.TypeReq)
			c.relay.Cut()
			after(10 * time.Minute)
			require.Equal(t, refused, c.manager.Status().Events.Learned["max_retained"])
			require.Greater(t, len(c.relay.Requests(wire.TypeReq)), len(closed))
			c.relay.Update(func(b *relaytest.Behavior) { b.MaxSubBytes = 0 })
			after(50 * time.Hour)
			require.Zero(t, c.rig.relay("wss://a.example").Unfollowed)
		})
	}
}

// A relay that rejects limit 0 was followed only by its daily pass, after up to 64 requests to find
// the cause.
func TestLimitZeroRefused(t *testing.T) {
	racetest.Amounts(t)
	for _, text := range []string{"invalid: Filter 'limit' must be a positive integer, got 0", "invalid: no"} {
		bubble(t, func(t *testing.T) {
			b := relaytest.Behavior{Negentropy: relaytest.NegNotice, ClosedReason: func(r wire.Request) string {
				for _, f := range r.Filters {
					if f.LimitZero {
						return text
					}
				}
				return ""
			}}
			c := crowded(t, b, relaysync.Config{}, 60)
			defer c.stop()
			after(10 * time.Minute)
			require.Empty(t, c.lacks(c.issues))
			refused := func() (n int) {
				for _, seen := range c.relay.Requests(wire.TypeReq) {
					if seen.Request.Filters[0].LimitZero {
						n++
					}
				}
				return n
			}
			require.Less(t, refused(), 10)
			require.Equal(t, 1, c.rig.relay("wss://a.example").Learned["no_limit_zero"])
			live := c.owner.Issue(at(0), c.owner.Ref("repo7"), "live")
			// Created before the subscription and published after it.
			older := c.owner.Issue(at(12*time.Minute), c.owner.Ref("repo8"), "older")
			c.relay.Publish(live, older)
			after(time.Second)
			require.Empty(t, c.lacks([]*nostr.Event{live, older}))

			// The limit is known on the next connection.
			before := refused()
			c.relay.Cut()
			after(time.Minute)
			require.Equal(t, before, refused())
			next := c.owner.Issue(at(0), c.owner.Ref("repo9"), "next")
			c.relay.Publish(next)
			after(time.Second)
			require.True(t, c.has(next))
			// The limit is believed for a day, because relays improve.
			c.relay.Update(func(b *relaytest.Behavior) { b.ClosedReason = nil })
			after(50 * time.Hour)
			c.relay.Cut()
			after(time.Minute)
			require.Zero(t, c.rig.relay("wss://a.example").Learned["no_limit_zero"])
			reqs := c.relay.Requests(wire.TypeReq)
			require.True(t, reqs[len(reqs)-1].Request.Filters[0].LimitZero || refused() > before)
		})
	}
}
