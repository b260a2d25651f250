package sync_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// openFiles returns the number of open descriptors, if the system reports it.
func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// Repeated starts and stops of a manager leave nothing behind.
func TestLeakStartStop(t *testing.T) {
	net := relaytest.NewNetwork()
	modes := []relaytest.Behavior{{}, {NoAnswer: true}, {Link: relaytest.Link{StopReading: true}}, {Down: true}, {Oddities: relaytest.Oddities{NeverEOSE: true}}}
	hosts := []string{us}
	for i, b := range modes {
		hosts = append(hosts, fmt.Sprintf("r%d.example", i))
		net.Add("wss://"+hosts[i+1], b)
	}
	owner := relaytest.NewCheapKey("owner")
	store := memstore.New()
	(&rig{t: t, store: store}).save(owner.Hosted(at(time.Hour), "repo", hosts...))
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	cycle := func(i int) {
		m, err := relaysync.New(store, net, identity, relaysync.Config{Verifier: relaytest.CheapVerifier{}, Times: relaysync.Times{BatchWindow: time.Millisecond}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(ctx)
		}()
		for range i % 20 { // stopped at different points of its work
			runtime.Gosched()
		}
		m.NotifyStored(eventtest.Of(owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint(i))))
		cancel()
		began := time.Now()
		<-ended
		require.Less(t, time.Since(began), 5*time.Second)
	}
	cycle(0)
	before := goleak.IgnoreCurrent()
	descriptors := openFiles()
	for i := range 200 {
		cycle(i)
	}
	goleak.VerifyNone(t, before) // the last goroutine may need a moment to end
	require.LessOrEqual(t, openFiles(), descriptors)
	for _, r := range net.Relays() {
		require.Zero(t, r.Connections().Open)
	}
}

// Run ends in time with 200 relays that hang in different ways. No goroutine remains, because the
// bubble would not end.
func TestPromiseP39_RunEndsUnderHungRelays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		hung := []relaytest.Behavior{
			{NoAnswer: true}, {Link: relaytest.Link{StopReading: true}}, {Oddities: relaytest.Oddities{NeverEOSE: true}, Negentropy: relaytest.NegSilent},
			{Latency: time.Hour}, {DialDelay: 9 * time.Second}, {Link: relaytest.Link{BytesPerSecond: 1}}, {Hostility: relaytest.Hostility{EndlessEvents: 50 * time.Millisecond}},
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
				require.Zero(t, rel.Connections().Open)
			}
		}
	})
}
