package sync_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func TestNewNamesEveryBadField(t *testing.T) {
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	_, err = relaysync.New(nil, nil, nip34.Identity{}, relaysync.Config{
		BatchWindow: -1, MaxConnections: -1, InFlight: 1, Health: health.Config{BaseBackoff: -1},
		Bootstrap: []graspsync.RelayURL{{}, relayURL(t, "ws://plain.example")},
	})
	require.ErrorIs(t, err, relaysync.ErrConfig)
	for _, name := range []string{
		"store", "transport", "identity", "BatchWindow", "MaxConnections", "InFlight", "Health", "Bootstrap", "ws://plain.example",
	} {
		require.ErrorContains(t, err, name)
	}
	_, err = relaysync.New(memstore.New(), relaytest.NewNetwork(), identity, relaysync.Config{
		Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://GRASP.example/")},
	})
	require.ErrorContains(t, err, "our own relay")
	_, err = relaysync.New(memstore.New(), relaytest.NewNetwork(), identity, relaysync.Config{})
	require.NoError(t, err)
}

func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, relaytest.NewNetwork(), memstore.New(), relaysync.Config{})
		synctest.Wait()
		require.ErrorIs(t, r.manager.Run(t.Context()), relaysync.ErrRunning)
		r.stop()
	})
}

// Starting and stopping at any time leaves no goroutine, because a bubble ends only when all its
// goroutines have ended.
func TestStartStop(t *testing.T) {
	for i := range 100 {
		synctest.Test(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			net.Add("wss://a.example", relaytest.Behavior{Latency: 50 * time.Millisecond})
			net.Add("wss://b.example", relaytest.Behavior{NoAnswer: true})
			r, owner := hosted(t, net, relaysync.Config{BatchWindow: time.Millisecond}, "a.example", "b.example")
			net.Relay(relayURL(t, "wss://a.example")).Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), "x"))
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			began := time.Now()
			r.stop()
			require.Less(t, time.Since(began), 5*time.Second)
		})
	}
}
