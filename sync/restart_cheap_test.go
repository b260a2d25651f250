package sync_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// hubOf fills a relay with n events of 20 repositories: one fifth are root events, the rest
// comments on them.
func hubOf(hub *relaytest.Relay, host string, n int) *relaytest.Key {
	owner := relaytest.NewCheapKey("owner")
	var roots []*nostr.Event
	for i := range n {
		switch name := fmt.Sprint("repo", i%20); {
		case i < 20:
			hub.Publish(owner.Hosted(at(48*time.Hour), name, us, host))
		case i < n/5:
			roots = append(roots, owner.Issue(at(time.Duration(24*60+i)*time.Minute), owner.Ref(name), fmt.Sprint(i)))
			hub.Publish(roots[len(roots)-1])
		default:
			hub.Publish(owner.Comment(at(time.Duration(3*i)*time.Second), roots[i%len(roots)], fmt.Sprint(i)))
		}
	}
	return owner
}

// After a restart everything was requested again. Now a restart within 15 minutes requests only the
// events since the end of the process, however it ended and whatever the relay supports.
func TestRestartIsCheap(t *testing.T) {
	racetest.Amounts(t)
	for _, c := range []struct {
		name     string
		behavior relaytest.Behavior
		killed   bool
	}{
		{"NIP-77", relaytest.Behavior{}, false},
		{"NIP-77, killed", relaytest.Behavior{}, true},
		{"pages", relaytest.Behavior{Negentropy: relaytest.NegNotice, Cap: 500}, false},
		{"pages, killed", relaytest.Behavior{Negentropy: relaytest.NegNotice, Cap: 500}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const events = 5_000
				net := relaytest.NewNetwork()
				hub := net.Add("wss://hub.example", c.behavior)
				owner := hubOf(hub, "hub.example", events)
				kept := state.NewMemory()
				cfg := relaysync.Config{State: kept, Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://hub.example")}}
				r := start(t, net, memstore.New(), cfg)
				after(10 * time.Minute)
				require.True(t, r.relay("wss://hub.example").Synced)
				first := hub.Traffic().BytesSent
				found := kept
				if c.killed {
					found = copied(t, kept)
				}
				r.stop()

				issue := owner.Issue(at(0), owner.Ref("repo7"), "while we were away")
				comment := owner.Comment(at(0), issue, "so was I")
				hub.Publish(issue, comment)
				after(10 * time.Minute)
				before := hub.Traffic().BytesSent
				cfg.State = found
				r = r.again(cfg)
				after(10 * time.Minute)
				require.True(t, r.relay("wss://hub.example").Synced)
				require.True(t, r.has(issue))
				require.True(t, r.has(comment))
				second := hub.Traffic().BytesSent - before
				r.stop()
				require.Less(t, float64(second), 0.05*float64(first))
			})
		})
	}
}

// The process is killed and restarted at any time, after short or long pauses. Events published
// before, in between and after are stored in the end, long before a daily pass could fetch them.
func TestRestartsMissNothing(t *testing.T) {
	racetest.Amounts(t)
	for seed := range uint64(racetest.Rounds(15)) {
		bubble(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, seed))
			net := relaytest.NewNetwork()
			behavior := relaytest.Behavior{Latency: time.Duration(rng.IntN(300)) * time.Millisecond, Cap: 20 + rng.IntN(100)}
			if seed%2 == 0 {
				behavior.Negentropy = relaytest.NegNotice
			}
			hub := net.Add("wss://hub.example", behavior)
			owner := hubOf(hub, "hub.example", 300)
			kept := state.NewMemory()
			cfg := relaysync.Config{State: kept, Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://hub.example")}}
			store := slowStore{Store: memstore.New(), delay: time.Duration(rng.IntN(2_000)) * time.Millisecond}
			var published, issues []*nostr.Event
			publish := func() {
				ev := owner.Issue(at(0), owner.Ref(fmt.Sprint("repo", rng.IntN(20))), fmt.Sprint(len(published)))
				if n := len(issues); n > 0 && rng.IntN(2) == 0 {
					ev = owner.Comment(at(0), issues[rng.IntN(n)], fmt.Sprint(len(published)))
				} else {
					issues = append(issues, ev)
				}
				published = append(published, ev)
				hub.Publish(ev)
			}
			var r *rig
			for range 8 {
				cfg.State = kept
				r = start(t, net, store, cfg)
				for range rng.IntN(10) {
					time.Sleep(time.Duration(rng.IntN(40_000)) * time.Millisecond)
					publish()
				}
				found := copied(t, kept)
				r.stop()
				kept = found
				for range rng.IntN(3) {
					time.Sleep(time.Duration(rng.IntN(1_000)) * time.Second)
					publish()
				}
			}
			r = start(t, net, store, cfg)
			after(15 * time.Minute)
			missing := 0
			for _, ev := range published {
				if !r.has(ev) {
					missing++
				}
			}
			require.Zero(t, missing, "of %d", len(published))
			r.stop()
		})
	}
}

// A process was killed during a save that took longer than filters look back.
func TestKilledDuringASlowSave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		owner, kept := relaytest.NewCheapKey("owner"), state.NewMemory()
		issue := owner.Issue(at(0), owner.Ref("repo"), "x")
		for _, delay := range []time.Duration{125 * time.Minute, 0} { // it ends soon after the kill
			r := &rig{t: t, store: memstore.New()}
			r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
			r = start(t, net, slowStore{r.store, delay}, relaysync.Config{State: kept})
			after(5 * time.Minute)
			require.Equal(t, delay == 0, r.has(issue))
			a.Publish(issue)
			after(2 * time.Hour)
			kept = copied(t, kept)
			r.stop()
		}
	})
}

// With constant events and a slow Store the pipeline is never empty. A restart fetched everything
// again, because no time was known up to which all events were stored.
func TestRestartIsCheapWhereEventsComeAllTheTime(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		hub := net.Add("wss://hub.example", relaytest.Behavior{Negentropy: relaytest.NegNotice, Cap: 500})
		owner := hubOf(hub, "hub.example", 8_000)
		kept := state.NewMemory()
		cfg := relaysync.Config{State: kept, Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://hub.example")}}
		r := start(t, net, slowStore{memstore.New(), 2 * time.Second}, cfg)
		after(10 * time.Minute)
		require.True(t, r.relay("wss://hub.example").Synced)
		first := hub.Traffic().BytesSent
		root := owner.Issue(at(0), owner.Ref("repo7"), "busy")
		hub.Publish(root)
		after(10 * time.Second)
		for i := range 800 {
			hub.Publish(owner.Comment(at(0), root, fmt.Sprint(i)))
			time.Sleep(1500 * time.Millisecond)
		}
		found := copied(t, kept) // killed
		r.stop()
		after(time.Minute)
		before := hub.Traffic().BytesSent
		cfg.State = found
		r = r.again(cfg)
		after(10 * time.Minute)
		require.True(t, r.relay("wss://hub.example").Synced)
		second := hub.Traffic().BytesSent - before
		r.stop()
		require.Less(t, second, first/3)
	})
}
