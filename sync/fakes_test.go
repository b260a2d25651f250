package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Relays that strangers list, and that answer as others do, took the connections of those
// that repositories are on, before and after a restart.
func TestPromiseP37_FakeRelays(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		kept, st := state.NewMemory(), memstore.New()
		cfg := relaysync.Config{Limits: relaysync.Limits{MaxConnections: 8}, State: kept}
		owner := relaytest.NewCheapKey("owner")
		(&rig{t: t, store: st}).save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example", "b.example"))
		honest := []*relaytest.Relay{net.Add("wss://a.example", relaytest.Behavior{}), net.Add("wss://b.example", relaytest.Behavior{})}
		for i, rel := range honest {
			rel.Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
		}
		r := start(t, net, st, cfg)
		after(5 * time.Minute)
		for i := range 20 { // each announcement by another key
			hosts := []string{us}
			for k := range 5 {
				host := fmt.Sprintf("fake%d-%d.example", i, k)
				net.Add("wss://"+host, relaytest.Behavior{})
				hosts = append(hosts, host)
			}
			r.save(relaytest.NewCheapKey(fmt.Sprint("spammer", i)).Hosted(at(0), "spam", hosts...))
		}
		share := func(minutes int) float64 {
			up := 0
			for range minutes {
				after(time.Minute)
				for _, rel := range honest {
					up += rel.Connections().Open
				}
			}
			return float64(up) / float64(minutes*len(honest))
		}
		before := share(4 * 60)
		r.stop()
		r = r.again(cfg)
		defer func() { r.stop() }()
		later := share(4 * 60)
		t.Logf("100 fake relays, 8 connections: honest ones connected for %.1f %% of the time, %.1f %% after a restart", 100*before, 100*later)
		assert.GreaterOrEqual(t, before, 0.98)
		assert.GreaterOrEqual(t, later, 0.98)
		fakes := 0
		for _, s := range r.manager.Status().Relays {
			if s.Connects > 0 {
				fakes++
			}
		}
		require.Greater(t, fakes, 80, "the others have their turn as well")
	})
}
