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

			if most > 24<<10 {
				return
			}
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
