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

// issuesAt publishes the same issues of a repository on relays.
func issuesAt(owner *relaytest.Key, n int, relays ...*relaytest.Relay) []*nostr.Event {
	all := make([]*nostr.Event, n)
	for i := range all {
		all[i] = owner.Issue(at(time.Duration(i+1)*time.Minute), owner.Ref("repo"), fmt.Sprint("issue ", i))
	}
	for _, r := range relays {
		r.Publish(all...)
	}
	return all
}

// idsAsked returns the number of requests for each id.
func idsAsked(relays ...*relaytest.Relay) map[string]int {
	ids := make(map[string]int)
	for _, r := range relays {
		for _, req := range r.Requests(wire.TypeReq) {
			for _, f := range req.Filters {
				for _, id := range f.IDs {
					ids[id]++
				}
			}
		}
	}
	return ids
}

// An event that several relays have is requested from one of them.
func TestEachEventIsAskedForOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		b := relaytest.Behavior{Negentropy: relaytest.NegOn, Latency: 50 * time.Millisecond}
		a, c, d := net.Add("wss://a.example", b), net.Add("wss://c.example", b), net.Add("wss://d.example", b)
		owner := relaytest.NewCheapKey("owner")
		issues := issuesAt(owner, 1500, a, c, d)
		r, _ := hosted(t, net, relaysync.Config{}, "a.example", "c.example", "d.example")
		defer r.stop()
		after(time.Minute)
		ids := idsAsked(a, c, d)
		for _, ev := range issues {
			require.True(t, r.has(ev))
			require.Equal(t, 1, ids[ev.ID])
		}
		for _, u := range []string{"wss://a.example", "wss://c.example", "wss://d.example"} {
			require.True(t, r.relay(u).Synced, u)
		}
	})
}

// A relay that announces ids and does not serve them delays others once, for five seconds.
func TestWhoClaimsInVainIsNotWaitedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		silent := net.Add("wss://a.example", relaytest.Behavior{
			Negentropy: relaytest.NegOn,
			Handle: func(_ *relaytest.ConnScript, req wire.Request) bool {
				return req.Type == wire.TypeReq && len(req.Filters[0].IDs) > 0
			},
		})
		honest := net.Add("wss://b.example", relaytest.Behavior{Negentropy: relaytest.NegOn, Latency: 20 * time.Millisecond})
		owner := relaytest.NewCheapKey("owner")
		first := issuesAt(owner, 600, silent, honest)
		r, _ := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
		defer r.stop()
		after(4 * time.Second)
		require.NotEmpty(t, idsAsked(silent))
		require.Empty(t, idsAsked(honest))
		after(8 * time.Second)
		for _, ev := range first {
			require.True(t, r.has(ev))
		}
		require.True(t, r.relay("wss://b.example").Synced)
	})
}

// Ids claimed by a lost connection are immediately requested from other relays.
func TestClaimsEndWithTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		dying := net.Add("wss://a.example", relaytest.Behavior{Negentropy: relaytest.NegOn})
		dying.Update(func(b *relaytest.Behavior) {
			b.Handle = func(_ *relaytest.ConnScript, req wire.Request) bool {
				if req.Type != wire.TypeReq || len(req.Filters[0].IDs) == 0 {
					return false
				}
				go func() {
					time.Sleep(2 * time.Second)
					dying.SetDown(true)
				}()
				return true
			}
		})
		other := net.Add("wss://b.example", relaytest.Behavior{Negentropy: relaytest.NegOn, Latency: 300 * time.Millisecond})
		owner := relaytest.NewCheapKey("owner")
		issues := issuesAt(owner, 200, dying, other)
		r, _ := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
		defer r.stop()
		after(12 * time.Second)
		require.Len(t, idsAsked(dying), len(issues), "it was asked")
		for _, ev := range issues {
			require.True(t, r.has(ev))
		}
	})
}
