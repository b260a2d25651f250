package sync_test

import (
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

var full = flag.Bool("full", false, "scenarios about amounts at their full size; takes minutes")

// useless returns a relay that sends requested events without end.
func useless(most int64, event func(i int) *nostr.Event) (*flooding, *relaytest.Relay) {
	net := &flooding{
		Network: relaytest.NewNetwork(), junk: map[string]junk{},
		sent: map[string]*atomic.Int64{"evil.example": new(atomic.Int64)}, most: most,
	}
	evil := net.Add("wss://evil.example", relaytest.Behavior{Down: true})
	n := 0
	net.junk["evil.example"] = func(sub string, _ int) wire.Message {
		n++
		ev := event(n)
		return wire.Message{Type: wire.TypeEvent, Sub: sub, Event: eventtest.Of(ev), Size: len(ev.String()) + 20}
	}
	return net, evil
}

// Requested useless events cost their relay nothing and delay no other relay, regardless of their
// number.
func TestPromiseP22_UselessEventsHoldNobodyUp(t *testing.T) {
	racetest.Amounts(t)
	key := relaytest.NewCheapKey("stranger")
	for name, event := range map[string]func(i int) *nostr.Event{
		"states":  func(i int) *nostr.Event { return key.State(at(time.Hour), fmt.Sprint("r", i), nil, "") },
		"foreign": func(i int) *nostr.Event { return key.Hosted(at(time.Hour), fmt.Sprint("r", i), "elsewhere.example") },
		"old versions": func(i int) *nostr.Event {
			return key.Hosted(at(time.Hour+time.Duration(i)*time.Second), "same", us)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net, evil := useless(1<<40, func(i int) *nostr.Event {
					time.Sleep(500 * time.Microsecond)
					return event(i)
				})
				honest := net.Add("wss://honest.example", relaytest.Behavior{})
				evil.SetDown(false)
				cfg := relaysync.Config{}.With(relaysync.Fixed{Unproductive: 2 << 20}) // half of what the relay sends
				r, owner := startFloodWith(t, net, cfg, "honest.example", "evil.example")
				defer r.stop()
				after(5 * time.Second)
				issue := owner.Issue(at(0), owner.Ref("repo"), "honest")
				honest.Publish(issue)
				after(time.Second)
				assert.True(t, r.has(issue))
				s := r.manager.Status().Events
				assert.Greater(t, s.Received, uint64(5_000), "else nothing is tested")
				assert.Zero(t, s.Dropped["unproductive"], "nothing that was asked for is hostile")
				if name == "foreign" {
					assert.Less(t, s.Verified, uint64(10))
				}
			})
		})
	}
}

// 210,000 waiting states of one relay evicted the waiting events of all others: an honest state was
// missing when its announcement was accepted. Without -full the size is one tenth.
func TestWaitingEventsOfOneRelayDriveOutNoOthers(t *testing.T) {
	racetest.Amounts(t)
	states, lasts := 21_000, time.Hour
	cfg := relaysync.Config{}.With(relaysync.Fixed{Remembered: 20_000, Waiting: 1_000, WaitingBytes: 32 << 20 / 10})
	if *full {
		states, lasts, cfg = 210_000, 6*time.Hour, relaysync.Config{}
	}
	bubble(t, func(t *testing.T) {
		key := relaytest.NewCheapKey("stranger")
		net, evil := useless(1<<40, func(i int) *nostr.Event {
			if i > states {
				time.Sleep(time.Hour)
			}
			return key.State(at(time.Hour), fmt.Sprint("r", i), nil, "")
		})
		honest := net.Add("wss://honest.example", relaytest.Behavior{})
		r, _ := startFloodWith(t, net, cfg, "honest.example", "evil.example")
		defer r.stop()
		bob := relaytest.NewCheapKey("bob")
		state := bob.State(at(time.Hour), "two", nil, "")
		honest.Publish(state)
		after(time.Minute)
		evil.SetDown(false)
		after(lasts)
		require.Greater(t, r.manager.Status().Events.Verified, uint64(states))
		r.save(bob.Hosted(at(time.Minute), "two", us, "honest.example"))
		after(time.Second)
		s := r.manager.Status().Events
		require.True(t, r.has(state), "at once; dropped %v", s.Dropped)
	})
}

// An honest relay with 300,000 announcements of other services was disconnected as hostile most of
// the time. Without -full the size is one twenty-fourth, which still takes longer than one batch.
func TestForeignEventsDoNotCutAnHonestRelay(t *testing.T) {
	racetest.Amounts(t)
	foreign, remembered, hours, verified, budget := 12_500, 8_000, 60, uint64(12_500+4*8_000), int64(4<<20)
	if *full { // a pass takes eight hours; the next one finds that nothing of it is remembered any more
		foreign, remembered, hours, verified, budget = 300_000, 200_000, 40, 4*300_000, 0
	}
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		var events []*nostr.Event
		spammer := relaytest.NewCheapKey("spammer")
		for i := range foreign {
			events = append(events, spammer.Hosted(at(time.Duration(i)*time.Second), fmt.Sprint("r", i), "elsewhere.example"))
		}
		a.Publish(events...)
		r, owner := hosted(t, net, relaysync.Config{}.With(relaysync.Fixed{Remembered: remembered, Unproductive: budget}), "a.example")
		defer r.stop()
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		a.Publish(issue)
		began := time.Now()
		for !r.has(issue) && time.Since(began) < time.Hour {
			after(time.Second)
		}
		took := time.Since(began)
		whole := 0
		for range 72 {
			after(time.Hour)
			s := r.relay("wss://a.example")
			if s.Confirmed == s.Wanted {
				whole++
			}
		}
		s := r.relay("wss://a.example")
		assert.Zero(t, r.manager.Status().Events.Dropped["unproductive"])
		assert.Greater(t, s.UptimeShare, 0.99)
		assert.Less(t, took, 5*time.Minute)
		assert.Greater(t, whole, hours, "hours in which all was")
		assert.Less(t, r.manager.Status().Events.Verified, verified, "most of it is remembered, where there is room for most of it")
	})
}

// Relays with the most events got most of the signature checks. Now relay hosts share the room: ten
// relays that send states without end delay the live events of an honest relay by less than a
// second.
func TestVerificationIsSharedByRelays(t *testing.T) {
	racetest.Amounts(t)
	slowest := func(evil int) (most time.Duration) {
		bubble(t, func(t *testing.T) {
			net := &flooding{Network: relaytest.NewNetwork(), junk: map[string]junk{}, sent: map[string]*atomic.Int64{}, most: 1 << 40}
			honest := net.Add("wss://honest.example", relaytest.Behavior{})
			hosts := []string{us, "honest.example"}
			var on atomic.Bool
			for i := range evil {
				host, key, n := fmt.Sprintf("evil%d.example", i), relaytest.NewCheapKey(fmt.Sprint("stranger", i)), 0
				hosts = append(hosts, host)
				net.Add("wss://"+host, relaytest.Behavior{})
				net.sent[host] = new(atomic.Int64)
				net.junk[host] = func(sub string, _ int) wire.Message {
					for !on.Load() {
						time.Sleep(time.Second)
					}
					n++
					ev := key.State(at(time.Hour), fmt.Sprint("r", n), nil, "")
					return wire.Message{Type: wire.TypeEvent, Sub: sub, Event: eventtest.Of(ev), Size: 500}
				}
			}
			owner, store := relaytest.NewCheapKey("owner"), newDiary(saveCost)
			before := &rig{t: t, store: store}
			for i := 0; i < len(hosts); i += 10 {
				before.save(owner.Hosted(at(24*time.Hour), fmt.Sprint("repo", i), append([]string{us}, hosts[i:min(i+10, len(hosts))]...)...))
			}
			r := startOver(t, net.Network, net, store, relaysync.Config{Verifier: costly{}}.With(relaysync.Fixed{Workers: 2}))
			defer r.stop()
			after(30 * time.Second)
			on.Store(true)
			for i := range 8 {
				ev := owner.Issue(at(0), owner.Ref("repo0"), fmt.Sprint("live", i))
				published := time.Now()
				honest.Publish(ev)
				time.Sleep(time.Second)
				when, ok := store.when(ev)
				require.True(t, ok)
				most = max(most, when.Sub(published))
			}
			if evil > 0 {
				require.Greater(t, r.manager.Status().Events.Verified, uint64(1_000*evil), "they were at it")
			}
		})
		return most
	}
	alone, beside := slowest(0), slowest(10)
	t.Logf("the slowest live event took %v alone, %v beside 10 relays that send in vain", alone, beside)
	require.Less(t, beside, alone+500*time.Millisecond)
}
