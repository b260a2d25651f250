package sync_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Relays of an announcement beyond the limits are ignored and counted.
func TestTrapD7_ListedBeyondTheBoundIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		owner := relaytest.NewCheapKey("owner")
		ev := owner.Hosted(at(time.Hour), "repo", us)
		for i := range nip34.MaxListed + 4 {
			ev.Tags = append(ev.Tags,
				nostr.Tag{"relays", fmt.Sprintf("wss://r%d.example", i)},
				nostr.Tag{"clone", fmt.Sprintf("https://c%d.example/r.git", i)})
		}
		for i := range nip34.MaxMaintainers + 3 {
			ev.Tags = append(ev.Tags, nostr.Tag{"maintainers", fmt.Sprintf("%064x", i+1)})
		}
		owner.Sign(ev)
		r := &rig{t: t, store: memstore.New()}
		r.save(ev)
		r = start(t, net, r.store, relaysync.Config{})
		defer r.stop()
		after(time.Minute)
		require.Len(t, r.manager.Status().Relays, 15, "and ourselves")
		dropped := r.manager.Status().Events.Dropped
		require.Equal(t, uint64(nip34.MaxListed+5-16), dropped["relays_listed"])
		require.Equal(t, uint64(5), dropped["clones_listed"])
		require.Equal(t, uint64(3), dropped["maintainers_listed"])
	})
}

// The number of remembered rejected ids is limited, and evicted ids are counted.
func TestRememberedIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		for i := range 30 {
			a.Publish(relaytest.NewCheapKey("stranger").Hosted(at(time.Hour), fmt.Sprint(i), "elsewhere.example"))
		}
		r, _ := hosted(t, net, relaysync.Config{}.With(relaysync.Fixed{Remembered: 10}), "a.example")
		defer r.stop()
		after(5 * time.Minute)
		require.Equal(t, uint64(20), r.manager.Status().Events.Dropped["remembered"])
	})
}

// holdingBadly is a Holder that cannot list its events.
type holdingBadly struct{ holdsNothing }

func (holdingBadly) Held(context.Context, nostr.Filter) ([]graspsync.EventKey, error) {
	panic("not my day")
}

func TestPanicsSayWhoseTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T) {
		identity, err := nip34.ParseIdentity(us)
		require.NoError(t, err)
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r := start(t, net, memstore.New(), relaysync.Config{
			Policy: relaysync.NewGRASPPolicy(identity), Holder: holdingBadly{}, Bootstrap: []graspsync.RelayURL{a.URL()},
		})
		defer r.stop()
		after(time.Minute)
		require.NotZero(t, r.manager.Status().Events.Panics["policy"])
		require.Len(t, r.manager.Status().Events.Panics, 1)
	})
}

// Health records evicted by a limit are counted and shown.
func TestLostHealthIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := hosted(t, relaytest.NewNetwork(), relaysync.Config{Health: health.Config{MaxRecords: 2}},
			"a.example", "b.example", "c.example", "d.example")
		defer r.stop()
		after(time.Minute)
		require.NotZero(t, r.manager.Status().Events.Dropped["health"])
	})
}
