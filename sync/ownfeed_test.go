package sync_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

const ownURL = "wss://internal.example"

// ownStore contains the events of our own relay, which is another process.
type ownStore struct {
	*memstore.Store
	own *relaytest.Relay
}

// Events implements [relaysync.Store].
func (s ownStore) Events(_ context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for _, ev := range s.own.Query(f) {
			if !yield(eventtest.Of(ev), nil) {
				return
			}
		}
	}
}

// follower starts a manager whose own relay is another process.
func follower(t *testing.T, net *relaytest.Network, own *relaytest.Relay, cfg relaysync.Config) *rig {
	t.Helper()
	cfg.OwnRelay = relayURL(t, ownURL)
	return start(t, net, ownStore{memstore.New(), own}, cfg)
}

// The relay's default limit cut the own feed to 500 events.
func TestTrapT11_OwnFeedReadsToItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		own := net.Add(ownURL, relaytest.Behavior{Cap: 500, DefaultLimit: 500})
		net.Add("wss://a.example", relaytest.Behavior{})
		owner := relaytest.NewCheapKey("owner")
		own.Publish(owner.Hosted(at(10_000*time.Hour), "repo", us, "a.example")) // the oldest of all
		for i := range 1_700 {
			own.Publish(owner.Issue(at(time.Duration(i)*time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
		}
		r := follower(t, net, own, relaysync.Config{})
		defer r.stop()
		after(time.Minute)
		s := r.manager.Status()
		require.Equal(t, 1, s.Repos)
		require.Equal(t, 1_700, s.Roots)
		require.Equal(t, "live", r.relay("wss://a.example").Phase)
		require.True(t, s.Synced)
		require.Zero(t, s.Events.Sources["direct"], "nobody submitted what was there before")

		own.Publish(owner.Hosted(at(0), "new", us, "a.example"))
		after(time.Minute)
		require.Equal(t, 2, r.manager.Status().Repos)
		require.Equal(t, uint64(1), r.manager.Status().Events.Sources["direct"])
		require.Empty(t, own.Violations())
		require.Len(t, r.manager.Status().Relays, 1, "our own relay is never synced from")
	})
}

// The own feed was not restarted after it ended.
func TestTrapT11_OwnFeedEnds(t *testing.T) {
	owner := relaytest.NewCheapKey("owner")
	mute := false // the relay accepts a subscription and sends nothing
	for _, end := range []struct {
		name  string
		end   func(own *relaytest.Relay)
		found time.Duration
	}{
		{"connection cut", func(own *relaytest.Relay) { own.Cut() }, 20 * time.Second},
		{"closed", func(own *relaytest.Relay) {
			own.Broadcast(wire.Message{Type: wire.TypeClosed, Sub: own.Subscriptions()[0].ID, Text: "error: you are too slow"})
		}, 20 * time.Second},
		{"down for hours", func(own *relaytest.Relay) {
			own.SetDown(true)
			after(5 * time.Hour)
			own.SetDown(false)
		}, 2 * time.Minute},
		{"silently", func(*relaytest.Relay) { mute = true }, 16 * time.Minute},
		{"cut again and again", func(own *relaytest.Relay) {
			own.Update(func(b *relaytest.Behavior) { b.CutAfter, b.Cuts = 3, 5 })
			own.Cut()
		}, 2 * time.Minute},
	} {
		t.Run(end.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				mute = false
				net := relaytest.NewNetwork()
				own := net.Add(ownURL, relaytest.Behavior{})
				net.Add("wss://a.example", relaytest.Behavior{})
				own.Publish(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
				r := follower(t, net, own, relaysync.Config{})
				defer r.stop()
				after(20 * time.Minute)
				require.Equal(t, 1, r.manager.Status().Repos)
				end.end(own)
				later := owner.Hosted(at(time.Second), "later", us, "a.example")
				if mute {
					silently(own, later)
				} else {
					own.Publish(later)
				}
				after(end.found)
				require.Equal(t, 2, r.manager.Status().Repos)
				own.Publish(owner.Hosted(at(0), "live", us, "a.example"))
				after(time.Minute)
				require.Equal(t, 3, r.manager.Status().Repos, "and it is followed again")
			})
		})
	}
}

// A relay that is down, refuses, or sends nonsense is retried with a limited backoff, and Run still
// ends.
func TestOwnFeedOddRelays(t *testing.T) {
	racetest.Amounts(t)
	for name, b := range map[string]relaytest.Behavior{
		"down":       {DialError: errors.New("no route to host \x1b[31m")},
		"no answer":  {NoAnswer: true},
		"never EOSE": {NeverEOSE: true},
		"closed":     {ClosedReason: func(wire.Request) string { return "auth-required: who are you?" }},
		"stops":      {StopReading: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				own := net.Add(ownURL, b)
				owner := relaytest.NewCheapKey("owner")
				own.Publish(owner.Hosted(at(24*time.Hour), "repo", us))
				logs := newCapture()
				r := follower(t, net, own, relaysync.Config{Logger: logs.logger()})
				after(3 * time.Hour)
				s := r.manager.Status()
				require.False(t, s.Synced, "who knows what there is to sync")
				if !b.StopReading { // its Send blocks until the transport gives up
					require.Greater(t, len(own.Dials()), 20)
				}
				require.Less(t, len(own.Dials()), 200)
				began := time.Now()
				r.stop()
				require.Less(t, time.Since(began), 5*time.Second)
			})
		})
	}
}
