package relaytest_test

import (
	"testing"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func TestNetworkIsATransport(t *testing.T) {
	t.Parallel()
	relaytest.RunTransport(t, func(*testing.T) (relaysync.Transport, graspsync.RelayURL, *relaytest.Relay) {
		net := relaytest.NewNetwork()
		relay := net.Add("wss://a.example", relaytest.Behavior{})
		return net, relay.URL(), relay
	})
}
