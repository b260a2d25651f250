package egress_test

import (
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/internal/racetest"
)

const (
	victim4 = "93.184.216.34"
	victim6 = "2606:2800:220:1::25c8"
	honest4 = "198.41.0.4"
)

// victims is the DNS of a wildcard name, and of strangers' names that point there.
type victims struct{}

func (victims) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == "honest.example" {
		return []netip.Addr{netip.MustParseAddr(honest4)}, nil
	}
	return []netip.Addr{netip.MustParseAddr(victim6), netip.MustParseAddr(victim4)}, nil
}

// due is a queue of relays by the time of their next attempt.
type due []dueRelay

type dueRelay struct {
	at time.Time
	u  graspsync.RelayURL
}

func (d due) Len() int           { return len(d) }
func (d due) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d due) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *due) Push(x any)        { *d = append(*d, x.(dueRelay)) }
func (d *due) Pop() any {
	x := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return x
}

// process contains the parts of a server that dial relays.
type process struct {
	t       *testing.T
	dialer  *egress.Dialer
	budget  *egress.Budget
	tracker *health.RelayHealthTracker
	seen    map[netip.Addr]int // connections, by address
	firstOK time.Time
}

func newProcess(t *testing.T, seen map[netip.Addr]int) *process {
	p := &process{t: t, seen: seen}
	var err error
	p.budget, err = egress.NewBudget(egress.BudgetConfig{})
	require.NoError(t, err)
	p.dialer, err = egress.NewDialer(egress.Config{
		Resolver: victims{}, Budget: p.budget, AllowPlaintext: true,
	}.With(egress.Fixed{HostAddrs: func() ([]netip.Addr, error) { return nil, nil }}))
	require.NoError(t, err)
	p.tracker, err = health.NewTracker(health.Config{})
	require.NoError(t, err)
	egress.SetSocket(p.dialer, func(_ context.Context, to netip.AddrPort, check func(string) error) (net.Conn, error) {
		if err := check(to.String()); err != nil {
			return nil, err
		}
		p.seen[to.Addr()]++
		if to.Addr() == netip.MustParseAddr(honest4) {
			conn, other := net.Pipe()
			t.Cleanup(func() { _ = other.Close() })
			return conn, nil
		}
		return nil, syscall.ECONNREFUSED
	})
	return p
}

// restart returns a new process after a crash during an attempt.
func (p *process) restart(urls []graspsync.RelayURL) *process {
	next := newProcess(p.t, p.seen)
	next.firstOK = p.firstOK
	var state egress.BudgetState
	roundTrip(p.t, p.budget.Export(), &state)
	next.budget.Import(state)
	for _, u := range urls {
		host := health.Host(u)
		saved, known := p.tracker.ExportHost(host)
		if !known {
			continue
		}
		var r health.Record
		roundTrip(p.t, saved, &r)
		next.tracker.ImportHost(host, r)
	}
	for _, u := range urls {
		if r, ok := p.tracker.Export(u); ok {
			next.tracker.Import(u, r)
		}
	}
	return next
}

func roundTrip(t *testing.T, from, to any) {
	b, err := json.Marshal(from)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, to))
}

// dial makes an attempt if it is allowed, and returns when the next one is.
func (p *process) dial(u graspsync.RelayURL) time.Time {
	if at := p.tracker.NextAttempt(u); at.After(time.Now()) {
		return at
	}
	p.tracker.Attempt(u)
	conn, err := p.dialer.DialContext(p.t.Context(), "tcp", u.HostPort().String())
	if err == nil {
		p.tracker.Connected(u)
		p.firstOK = time.Now()
		p.t.Cleanup(func() { _ = conn.Close() })
		return time.Now().Add(1000 * time.Hour)
	}
	p.tracker.Failed(u, err)
	return p.tracker.NextAttempt(u)
}

// mostRelays is the maximum number of relays per announcement.
const mostRelays = 16

// attack returns the URLs that count of the announcements of 250 keys with 1,000 URLs each.
func attack(t *testing.T) (urls []graspsync.RelayURL) {
	keys := racetest.Rounds(250)
	for key := range keys {
		for i := range mostRelays {
			n := key*mostRelays + i
			s := [...]string{
				"wss://victim.example/%d", "wss://s%d.victim.example", "wss://victim.example:%d/p", "wss://c%d.evil.example/x",
				"wss://" + victim4 + "/%d", "wss://[" + victim6 + "]/%d", "ws://s%d.victim.example:8080", "wss://k%d.victim.example:4443/a/b",
			}[n%8]
			arg := n
			if n%8 == 2 {
				arg = 1024 + n%60000
			}
			u, err := graspsync.ParseRelayURL(fmt.Sprintf(s, arg))
			require.NoError(t, err)
			urls = append(urls, u)
		}
	}
	return urls
}

// Strangers sign 250,000 URLs that lead to one victim, and the server crashes again and again. Another
// server treated each path, name and restart as a new relay.
func TestPromiseP14_Victim(t *testing.T) {
	racetest.Amounts(t)
	synctest.Test(t, func(t *testing.T) {
		urls := attack(t)
		honest, err := graspsync.ParseRelayURL("wss://honest.example")
		require.NoError(t, err)
		seen := make(map[netip.Addr]int)
		p := newProcess(t, seen)
		began, restarts := time.Now(), 0
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		queue := make(due, 0, len(urls)+1)
		for _, u := range append(urls, honest) {
			queue = append(queue, dueRelay{began, u})
		}
		heap.Init(&queue)
		for {
			next := queue[0]
			if next.at.Sub(began) >= 24*time.Hour {
				break
			}
			if crash := began.Add(time.Duration(restarts+1) * 28 * time.Minute); restarts < 50 && next.at.After(crash) {
				time.Sleep(time.Until(crash))
				p.tracker.Attempt(urls[restarts*7]) // and dies of it
				p = p.restart(urls)
				restarts++
			}
			time.Sleep(time.Until(next.at))
			queue[0].at = p.dial(next.u)
			if !queue[0].at.After(time.Now()) {
				queue[0].at = time.Now().Add(time.Second)
			}
			heap.Fix(&queue, 0)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		four, six := seen[netip.MustParseAddr(victim4)], seen[netip.MustParseAddr(victim6)]
		t.Logf("victim: 1,000 URLs signed by each key, %d of them count, 24 h, %d restarts: %d connections over IPv4, %d over IPv6; "+
			"heap grew by %d KiB; honest relay connected after %v",
			len(urls), restarts, four, six, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>10, p.firstOK.Sub(began))
		assert.Equal(t, 50, restarts)
		// Eleven waits until they are an hour long, then one an hour: the promise, for an address. That two
		// are one victim only names say.
		assert.LessOrEqual(t, max(four, six), 36, "connections to an address of the victim on its first day")
		assert.Greater(t, four+six, 10, "it is tried, though")
		assert.Less(t, p.firstOK.Sub(began), 2*time.Second, "an honest relay waits for nobody")
		assert.Equal(t, 1, seen[netip.MustParseAddr(honest4)])
		runtime.KeepAlive(p)
	})
}
