package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Relays beyond MaxConnections, including a bootstrap relay, were never dialed.
func TestConnectionsRotate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		boot := net.Add("wss://boot.example", relaytest.Behavior{})
		var hosts []string
		var relays []*relaytest.Relay
		for i := range 6 {
			hosts = append(hosts, fmt.Sprintf("r%d.example", i))
			relays = append(relays, net.Add("wss://"+hosts[i], relaytest.Behavior{}))
		}
		owner := relaytest.NewCheapKey("owner")
		var issues []*nostr.Event
		for i, rel := range relays {
			issues = append(issues, owner.Issue(at(time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
			rel.Publish(issues[i])
		}
		r, _ := hosted(t, net, relaysync.Config{MaxConnections: 3, Bootstrap: []graspsync.RelayURL{boot.URL()}}, hosts...)
		defer r.stop()
		for range 120 {
			after(time.Minute)
			open := 0
			for _, rel := range net.Relays() {
				open += rel.Open()
			}
			require.LessOrEqual(t, open, 3)
		}
		for _, ev := range issues {
			require.True(t, r.has(ev))
		}
		require.Equal(t, 1, len(boot.Dials()), "a bootstrap relay keeps its connection")
	})
}

// A relay that exceeded the maximum number of relays was never followed later.
func TestRelaysBeyondTheBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		for _, u := range []string{"wss://a.example", "wss://b.example", "wss://c.example"} {
			net.Add(u, relaytest.Behavior{})
		}
		r, owner := hosted(t, net, relaysync.Config{}.With(relaysync.Fixed{MaxRelays: 2}), "a.example", "b.example")
		defer r.stop()
		after(time.Minute)
		r.save(owner.Hosted(at(time.Hour), "two", us, "c.example"))
		after(time.Minute)
		require.Equal(t, uint64(1), r.manager.Status().Events.Dropped["relays"])
		r.save(owner.Hosted(at(0), "repo", us))
		after(26 * time.Hour) // until the Store was read again
		require.Len(t, r.manager.Status().Relays, 1)
		require.Equal(t, "live", r.relay("wss://c.example").Phase)
	})
}
