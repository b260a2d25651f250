package sync_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/cputime"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// idleConnections is an environment variable with the number of idle connections. If it is set, the
// cost is printed like a benchmark result, for cmd/bench.
const idleConnections = "GRASPSYNC_BENCH_CONNECTIONS"

// Without activity no relay gets a request, because new events arrive live.
func TestIdleHour(t *testing.T) {
	connections, said := 20, false
	if text := os.Getenv(idleConnections); text != "" {
		var err error
		connections, err = strconv.Atoi(text)
		require.NoError(t, err)
		said = true
	}
	bubble(t, func(t *testing.T) {
		net, owner := relaytest.NewNetwork(), relaytest.NewCheapKey("owner")
		r := &rig{t: t, store: memstore.New()}
		var stored []*nostr.Event
		for i := range connections {
			host := fmt.Sprintf("r%d.example", i)
			net.Add("wss://"+host, relaytest.Behavior{})
			stored = append(stored, owner.Hosted(at(24*time.Hour), fmt.Sprint("repo", i), us, host))
		}
		r.save(stored...)
		r = start(t, net, r.store, relaysync.Config{MaxConnections: 2 * connections})
		defer r.stop()
		after(time.Duration(connections)*time.Second + 10*time.Minute)
		require.True(t, r.manager.Status().Synced)
		sent := func() (n int) {
			for _, relay := range net.Relays() {
				n += len(relay.Requests())
			}
			return n
		}
		before, began := sent(), cputime.Used()
		after(time.Hour)
		requests, took := sent()-before, cputime.Used()-began
		require.Zero(t, requests)
		require.Equal(t, connections, connOpened(r.manager.Status()))
		if said {
			fmt.Printf("BenchmarkIdleHour 1 %d requests %f cpu-s\n", requests, took.Seconds())
		}
	})
}

// connOpened returns the number of connected relays.
func connOpened(s relaysync.Status) (n int) {
	for _, r := range s.Relays {
		if r.Phase == "live" {
			n++
		}
	}
	return n
}
