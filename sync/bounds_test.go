package sync_test

import (
	"bytes"
	"fmt"
	"log/slog"
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
		r, _ := hosted(t, net, relaysync.Config{Limits: relaysync.Limits{MaxConnections: 3}, Bootstrap: []graspsync.RelayURL{boot.URL()}}, hosts...)
		defer r.stop()
		for range 120 {
			after(time.Minute)
			open := 0
			for _, rel := range net.Relays() {
				open += rel.Connections().Open
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
		after(time.Minute)
		require.Len(t, r.manager.Status().Relays, 1)
		require.Equal(t, "live", r.relay("wss://c.example").Phase)
	})
}

// Each NOTICE of many caused a log line and a step of the loop.
func TestNoticeStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, _ := hosted(t, net, relaysync.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, "a.example")
		after(time.Minute)
		for range 2000 {
			a.Broadcast(wire.Message{Type: wire.TypeNotice, Text: "rate-limited: slow down"},
				wire.Message{Type: wire.TypeNotice, Text: "hello"})
			after(time.Millisecond)
		}
		r.stop()
		require.Less(t, strings.Count(log.String(), "\n"), 20)
	})
}

// A relay may report a lost session, because it answered before it stored the session or because it
// dropped it. Neither loses events.
func TestNegentropySessionLost(t *testing.T) {
	for name, b := range map[string]relaytest.Behavior{
		"for good": {Reconciling: relaytest.Reconciling{NegRounds: 1}},
		"at first": {Handle: func() func(*relaytest.ConnScript, wire.Request) bool {
			left := 2
			return func(c *relaytest.ConnScript, req wire.Request) bool {
				if req.Type != wire.TypeNegSend || left == 0 {
					return false
				}
				left--
				c.Send(wire.Message{Type: wire.TypeNegErr, Sub: req.Sub, Text: "CLOSED"})
				return true
			}
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				b.NegFrame = 4096 // so that several rounds are needed
				a := net.Add("wss://a.example", b)
				owner := relaytest.NewCheapKey("owner")
				var issues []*nostr.Event
				for i := range 1000 {
					issues = append(issues, owner.Issue(at(time.Duration(i+1)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
				}
				a.Publish(issues...)
				r, _ := hosted(t, net, relaysync.Config{}, "a.example")
				defer r.stop()
				after(10 * time.Minute)
				for _, ev := range issues {
					require.True(t, r.has(ev))
				}
				require.Equal(t, uint64(1), r.relay("wss://a.example").Connects)
				require.Equal(t, "live", r.relay("wss://a.example").Phase)
				if name == "at first" {
					require.Equal(t, "NIP-77", r.relay("wss://a.example").Method)
				}
			})
		})
	}
}
