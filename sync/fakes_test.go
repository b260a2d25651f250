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

// Relays that strangers list, and that answer like normal relays, took the connections of the
// relays of real repositories, before and after a restart. Now each owner has a share, in which its
// relays take turns.
func TestPromiseP37_FakeRelays(t *testing.T) {
	racetest.Amounts(t)
	for _, c := range []struct {
		keys, fakes int     // fakes: relays of each key
		least       float64 // of the time: 8 connections among as many owners, one of whom has two relays
	}{{3, 34, 0.98}, {20, 5, 0.7 * 8 / 21 / 2}} {
		t.Run(fmt.Sprint(c.keys, " keys"), func(t *testing.T) {
			bubble(t, func(t *testing.T) { fakeRelays(t, c.keys, c.fakes, c.least) })
		})
	}
}

func fakeRelays(t *testing.T, keys, fakes int, least float64) {
	net := relaytest.NewNetwork()
	kept, st := state.NewMemory(), memstore.New()
	cfg := relaysync.Config{MaxConnections: 8, State: kept}
	owner := relaytest.NewCheapKey("owner")
	(&rig{t: t, store: st}).save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example", "b.example"))
	honest := []*relaytest.Relay{net.Add("wss://a.example", relaytest.Behavior{}), net.Add("wss://b.example", relaytest.Behavior{})}
	for i, rel := range honest {
		rel.Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
	}
	r := start(t, net, st, cfg)
	after(5 * time.Minute)
	for i := range keys {
		hosts := []string{us}
		for k := range fakes {
			host := fmt.Sprintf("fake%d-%d.example", i, k)
			net.Add("wss://"+host, relaytest.Behavior{})
			hosts = append(hosts, host)
			if len(hosts) == 15 || k == fakes-1 {
				r.save(relaytest.NewCheapKey(fmt.Sprint("spammer", i)).Hosted(at(0), fmt.Sprint("spam", k), hosts...))
				hosts = []string{us}
			}
		}
	}
	share := func(minutes int) float64 {
		up := 0
		for range minutes {
			after(time.Minute)
			for _, rel := range honest {
				up += rel.Open()
			}
		}
		return float64(up) / float64(minutes*len(honest))
	}
	before := share(4 * 60)
	r.stop()
	r = r.again(cfg)
	defer func() { r.stop() }()
	after(time.Hour) // until all relays listed at the start have had a turn
	later := share(4 * 60)
	t.Logf("100 fake relays, 8 connections: honest ones connected for %.1f %% of the time, %.1f %% after a restart", 100*before, 100*later)
	assert.GreaterOrEqual(t, before, least)
	assert.GreaterOrEqual(t, later, least)
	met := 0
	for _, s := range r.manager.Status().Relays {
		if s.Connects > 0 {
			met++
		}
	}
	require.Greater(t, met, 80, "the others have their turn as well")
}
