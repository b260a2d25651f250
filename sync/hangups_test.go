package sync_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// anyFilter reports whether is returns true for a filter of a REQ.
func anyFilter(req wire.Request, is func(nostr.Filter) bool) bool {
	return req.Type == wire.TypeReq && slices.ContainsFunc(req.Filters, is)
}

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

// A relay that disconnected after one form of request got that form again and again until it was
// dead, and its events were never fetched.
func TestHangingUpIsARefusal(t *testing.T) {
	racetest.Amounts(t)
	for name, c := range map[string]struct {
		over    func(req wire.Request) bool
		learned string // facts after a day
	}{
		"NEG-OPEN": {func(req wire.Request) bool { return req.Type == wire.TypeNegOpen }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				time.Sleep(400 * 24 * time.Hour)
				net := relaytest.NewNetwork()
				b, times := hangsUp(c.over)
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
				s := r.relay("wss://a.example")
				if c.learned != "" {
					require.Contains(t, s.Learned, c.learned)
				}
				require.Equal(t, "live", s.Phase, "NIP-77 compares what the relay refuses to serve")
				t.Logf("hung up %d times, %s: %v", times(), s.Phase, s.Learned)
				require.Less(t, times(), 30)

				// Live events arrive, and the refused form is hardly repeated.
				before := times()
				live := owner.Issue(at(0), owner.Ref("repo"), "live")
				a.Publish(live)
				healthy := 0 // not in the minutes after a form is tried again
				for range 72 {
					if after(time.Hour); r.relay("wss://a.example").Health == "healthy" {
						healthy++
					}
				}
				require.True(t, r.has(live))
				require.Greater(t, healthy, 60)
				require.Less(t, times()-before, 3*7)
			})
		})
	}
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
