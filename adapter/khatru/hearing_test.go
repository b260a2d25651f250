package khatruadapter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// deaf is a policy without recognized authors.
type deaf struct{ relaysync.Policy }

func (deaf) RecognizedAuthors(string, relaysync.View) map[graspsync.PubKey]bool { return nil }

// A state that arrived before the announcement that makes its author a maintainer was not judged
// again when that announcement was held, because the policy behind the hooks did not return
// recognized authors.
func TestAStateThatComesBeforeWhatIsHeld(t *testing.T) {
	const us = "us.example"
	alice, bob, cat := relaytest.NewCheapKey("alice"), relaytest.NewCheapKey("bob"), relaytest.NewCheapKey("cat")
	dan, eve := relaytest.NewCheapKey("dan"), relaytest.NewCheapKey("eve")
	at := func(ago time.Duration) nostr.Timestamp { return nostr.Timestamp(time.Now().Add(-ago).Unix()) }
	announce := func(k *relaytest.Key, host string, lists ...*relaytest.Key) *nostr.Event {
		return k.Announcement(at(time.Hour), "repo", []string{"wss://a.example", "wss://" + host},
			[]string{k.CloneURL("wss://"+host, "repo")}, lists...)
	}
	says := func(k *relaytest.Key) *nostr.Event {
		return k.State(at(time.Minute), "repo", map[string]string{"refs/heads/main": fmt.Sprintf("%040x", 1)}, "main")
	}
	later := "of who gains a say by another one's"
	cases := map[string]func() []*nostr.Event{
		"of the owner": func() []*nostr.Event { return []*nostr.Event{says(alice), announce(alice, us)} },
		"of a maintainer": func() []*nostr.Event {
			return []*nostr.Event{announce(alice, us, bob), says(bob), announce(bob, "b.example", alice)}
		},
		// Their events are already held, because eve lists them without confirmation. bob's events
		// do not name dan, who is a maintainer through bob and cat.
		later: func() []*nostr.Event {
			return []*nostr.Event{
				announce(eve, us, cat, dan), announce(cat, "c.example", bob, dan), announce(dan, "d.example", cat),
				announce(alice, us, bob), says(dan), announce(bob, "b.example", alice, cat),
			}
		},
	}
	run := func(t *testing.T, events func() []*nostr.Event, wrap func(*purgatoryadapter.Policy) relaysync.Policy) {
		relay := khatru.NewRelay() // starts a goroutine that never ends
		synctest.Test(t, func(t *testing.T) {
			identity, err := nip34.ParseIdentity(us)
			require.NoError(t, err)
			u, err := graspsync.ParseRelayURL("wss://a.example")
			require.NoError(t, err)
			net := relaytest.NewNetwork()
			a := net.Add("wss://a.example", relaytest.Behavior{})
			db := &slicestore.SliceStore{}
			require.NoError(t, db.Init())
			policy := purgatoryadapter.NewPolicy(relaysync.NewGRASPPolicy(identity))
			s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{
				ApplyPolicyToClients: true, Transport: net,
				Sync: relaysync.Config{Policy: wrap(policy), Holder: policy, Verifier: relaytest.CheapVerifier{}, Bootstrap: []graspsync.RelayURL{u}},
			})
			require.NoError(t, err)
			host := purgatoryadapter.Host{
				Store: s.Store(), Release: s.Release, Held: s.Manager().NotifyHeld, Removed: s.Manager().NotifyRemoved, Postponed: s.Manager().NotifyDeferred, Lists: policy.Lists,
			}
			git := fetchtest.New()
			waits, err := purgatory.Open(t.Context(), host.Relay(), git, git, git, state.NewMemory(),
				purgatory.Config{Identity: identity, Observe: host.Observe})
			require.NoError(t, err)
			policy.Join(waits)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _ = waits.Run(ctx) })
			wg.Go(func() { _ = s.Run(ctx) })
			after := func(d time.Duration) {
				time.Sleep(d)
				synctest.Wait()
			}
			after(time.Minute)
			all := events()
			for i, ev := range all {
				a.Publish(ev)
				after(time.Minute) // long enough for all effects
				if i == len(all)-2 {
					require.EqualValues(t, 1, s.Manager().Status().Events.Waiting, "the state has nothing to wait with")
				}
			}
			require.Len(t, waits.Held(nostr.Filter{}), len(all))
			require.Zero(t, s.Manager().Status().Events.Waiting)
			cancel()
			wg.Wait()
		})
	}
	for name, events := range cases {
		t.Run(name, func(t *testing.T) {
			run(t, events, func(p *purgatoryadapter.Policy) relaysync.Policy { return p })
		})
		if name != later {
			t.Run(name+", and nobody can tell", func(t *testing.T) {
				run(t, events, func(p *purgatoryadapter.Policy) relaysync.Policy { return deaf{p} })
			})
		}
	}
}
