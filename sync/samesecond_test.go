package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// TestSameSecond uses a relay with 5,000 events of one second, more than a page holds. Events that
// cannot be fetched are counted as a full second, the relay is then "live with gaps", and no
// request is repeated again and again.
func TestSameSecond(t *testing.T) {
	racetest.Amounts(t)
	const events = 2_000
	for _, spread := range []bool{true, false} {
		for _, neg := range []bool{true, false} {
			for _, limit := range []int{20, 100, 500} {
				t.Run(fmt.Sprintf("spread=%t/nip77=%t/cap=%d", spread, neg, limit), func(t *testing.T) {
					bubble(t, func(t *testing.T) { sameSecond(t, events, limit, neg, spread) })
				})
			}
		}
	}
}

func sameSecond(t *testing.T, events, limit int, neg, spread bool) {
	net := relaytest.NewNetwork()
	b := relaytest.Behavior{Cap: limit, Latency: 20 * time.Millisecond}
	if !neg {
		b.Negentropy = relaytest.NegNotice
	}
	a := net.Add("wss://a.example", b)
	owner := relaytest.NewCheapKey("owner")
	authors, repos := []*relaytest.Key{owner}, 1
	if spread {
		repos = 10
		for i := range 9 {
			authors = append(authors, relaytest.NewCheapKey(fmt.Sprint("author", i)))
		}
	}
	r := &rig{t: t, store: memstore.New()}
	for i := range repos {
		r.save(owner.Hosted(at(24*time.Hour), fmt.Sprint("repo", i), us, "a.example"))
	}
	second := at(6 * time.Hour)
	var all []*nostr.Event
	for n := range events {
		ref := owner.Ref(fmt.Sprint("repo", n%repos))
		who := authors[n/repos%len(authors)]
		switch {
		case spread && n%3 == 0:
			all = append(all, who.Patch(second, ref, fmt.Sprint("patch ", n)))
		case spread && n%3 == 1:
			all = append(all, who.PullRequest(second, ref, fmt.Sprint("pull ", n), fmt.Sprintf("f%039x", n)))
		default:
			all = append(all, who.Issue(second, ref, fmt.Sprint("issue ", n)))
		}
	}
	below := owner.Issue(second-100, owner.Ref("repo0"), "below")
	a.Publish(append(all, below)...)
	r = start(t, net, r.store, relaysync.Config{MaxRootsPerRepo: 20})
	defer r.stop()
	after(10 * time.Minute)

	missed := 0
	for _, ev := range all {
		if !r.has(ev) {
			missed++
		}
	}
	requests := len(a.Requests(wire.TypeReq, wire.TypeNegOpen, wire.TypeNegSend))
	s := r.relay("wss://a.example")
	require.True(t, r.has(below), "what is below a full second is fetched")
	require.Empty(t, net.Violations())
	if missed > 0 {
		require.NotZero(t, s.Seconds, "silently missed")
		require.Equal(t, "live with gaps", s.Phase)
	}
	if neg {
		require.Zero(t, missed)
		require.Zero(t, s.Seconds)
	}
	after(2 * time.Hour)
	require.Equal(t, requests, len(a.Requests(wire.TypeReq, wire.TypeNegOpen, wire.TypeNegSend)), "it loops")
}

// Events that a relay received in one second during a connection loss are first requested by pages.
// Then the second is reconciled.
func TestSameSecondWhileAway(t *testing.T) {
	for _, limit := range []int{20, 500} {
		t.Run(fmt.Sprint("cap=", limit), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{Cap: limit})
				r, owner := hosted(t, net, relaysync.Config{MaxRootsPerRepo: 20}, "a.example")
				defer r.stop()
				after(10 * time.Minute)
				a.SetDown(true)
				after(5 * time.Minute)
				var all []*nostr.Event
				for n := range 2_000 {
					all = append(all, owner.Issue(at(2*time.Minute), owner.Ref("repo"), fmt.Sprint(n)))
				}
				a.Publish(all...)
				a.SetDown(false)
				after(30 * time.Minute)
				missed := 0
				for _, ev := range all {
					if !r.has(ev) {
						missed++
					}
				}
				s := r.relay("wss://a.example")
				require.Zero(t, missed)
				require.Zero(t, s.Seconds)
				require.Equal(t, "live", s.Phase)
				require.Empty(t, net.Violations())
			})
		})
	}
}

// The NIP-11 document of a relay declared a limit below that of any real relay, and was believed.
// With pages of one or two events, three events of one second never all arrived.
func TestLimitTooSmallToBeTrue(t *testing.T) {
	for _, said := range []int{1, 2, 4} {
		t.Run(fmt.Sprint("max_limit=", said), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{Negentropy: relaytest.NegErr, Info: wire.Info{MaxLimit: said}})
				r, owner := hosted(t, net, relaysync.Config{}, "a.example")
				defer r.stop()
				var all []*nostr.Event
				for n := range 30 {
					all = append(all, owner.Issue(at(time.Duration(n/3+3)*time.Hour), owner.Ref("repo"), fmt.Sprint(n)))
				}
				a.Publish(all...)
				after(time.Hour)
				for _, ev := range all {
					require.True(t, r.has(ev))
				}
				require.Equal(t, "live", r.relay("wss://a.example").Phase)
			})
		})
	}
}
