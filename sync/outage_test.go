package sync_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// A Store could save nothing for six hours, with little room in the pipeline. Most live events of
// that time were stored only after requests by id, and some only by the daily pass.
func TestStoreDownForHoursWithLittleRoom(t *testing.T) {
	racetest.Amounts(t)
	for _, relays := range []int{1, 3} {
		t.Run(fmt.Sprint(relays, " relays"), func(t *testing.T) {
			bubble(t, func(t *testing.T) { storeDownWithLittleRoom(t, relays) })
		})
	}
}

func storeDownWithLittleRoom(t *testing.T, relays int) {
	net := relaytest.NewNetwork()
	hosts := []string{us}
	for i := range relays {
		hosts = append(hosts, fmt.Sprintf("r%d.example", i))
	}
	all := make([]*relaytest.Relay, relays)
	for i := range all {
		all[i] = net.Add("wss://"+hosts[i+1], relaytest.Behavior{})
	}
	owner := relaytest.NewCheapKey("owner")
	store := &badStore{Store: memstore.New()}
	before := &rig{t: t, store: store}
	before.save(owner.Hosted(at(24*time.Hour), "repo", hosts...))
	r := startOver(t, net, net, store, relaysync.Config{InFlight: 4 << 20})
	defer r.stop()
	after(5 * time.Minute)
	store.down.Store(true)
	var events []*nostr.Event
	heap := heapInUse()
	for minute := range 360 {
		for i := range 40 {
			ev := owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint(minute, "/", i))
			events = append(events, ev)
			all[i%relays].Publish(ev)
		}
		after(time.Minute)
	}
	grown := heapInUse() - heap
	store.down.Store(false)
	var took time.Duration
	missing := func() (n int) {
		for _, ev := range events {
			if !r.has(ev) {
				n++
			}
		}
		return n
	}
	for _, d := range []time.Duration{time.Minute, 4 * time.Minute, 5 * time.Minute, 10 * time.Minute, 100 * time.Minute} {
		after(d)
		took += d
		n := missing()
		t.Logf("%v after it worked again %d of %d missing", took, n, len(events))
		if n == 0 {
			break
		}
	}
	require.Zero(t, missing())
	assert.LessOrEqual(t, took, 10*time.Minute)
	s := r.manager.Status()
	t.Logf("dropped %v; heap in use grew by %d MiB while it was down", s.Events.Dropped, grown>>20)
	for i := range all {
		u := r.relay("wss://" + hosts[i+1])
		t.Logf("%d events, %d KiB of a relay", u.Events, u.Bytes>>10)
	}
}
