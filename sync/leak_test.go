package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Run ends in time with 200 relays that hang in different ways. No goroutine remains, because the
// bubble would not end.
func TestPromiseP39_RunEndsUnderHungRelays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		hung := []relaytest.Behavior{
			{NoAnswer: true}, {StopReading: true}, {NeverEOSE: true, Negentropy: relaytest.NegSilent},
			{Latency: time.Hour}, {DialDelay: 9 * time.Second}, {BytesPerSecond: 1}, {EndlessEvents: 50 * time.Millisecond},
		}
		r := &rig{t: t, store: memstore.New()}
		for i := range 20 {
			owner := relaytest.NewCheapKey(fmt.Sprint("owner", i))
			hosts := []string{us}
			for j := range 10 {
				n := i*10 + j
				hosts = append(hosts, fmt.Sprintf("r%d.example", n))
				rel := net.Add("wss://"+hosts[j+1], hung[n%len(hung)])
				rel.Publish(owner.Issue(at(time.Hour), owner.Ref("repo"), "x"))
			}
			r.save(owner.Hosted(at(time.Hour), "repo", hosts...))
		}
		for _, patience := range []time.Duration{0, time.Second, 15 * time.Second, time.Minute} {
			r = start(t, net, r.store, relaysync.Config{}.With(relaysync.Fixed{MaxDials: 50}))
			after(patience)
			began := time.Now()
			r.stop()
			require.LessOrEqual(t, time.Since(began), 5*time.Second, patience)
			for _, rel := range net.Relays() {
				require.Zero(t, rel.Open())
			}
		}
	})
}
