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
