package admin

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/graspsync/graspsync/internal/bounded"
)

const (
	// wrongMost is how often in a row a client may be wrong, and wrongEvery after what time once
	// more.
	wrongMost  = 20
	wrongEvery = 3 * time.Second
	// maxClients bounds the clients that are remembered.
	maxClients = 10_000
)

// pace says whether a client may try once more. Who is right is not counted. Those whom we can't
// tell apart are never made to wait: one of them may be the owner.
type pace struct {
	mu      sync.Mutex
	clients bounded.Table[string, tries] // guarded by mu
}

// tries is how often a client was wrong, as of a time; one less after each wrongEvery.
type tries struct {
	n  float64
	at time.Time
}

func newPace() *pace { return &pace{clients: bounded.New[string, tries](maxClients)} }

// wait returns for how long a client is not heard; 0: it may try.
func (p *pace) wait(client string, now time.Time) time.Duration {
	if client == "" {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t, _ := p.clients.Get(client)
	if over := t.left(now) - (wrongMost - 1); over > 0 {
		return time.Duration(over * float64(wrongEvery))
	}
	return 0
}

// wrong counts a request that was not obeyed.
func (p *pace) wrong(client string, now time.Time) {
	if client == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t, _ := p.clients.Get(client)
	p.clients.Set(client, tries{min(wrongMost, t.left(now)+1), now})
}

// left is how often a client was wrong, less what it was forgiven since.
func (t tries) left(now time.Time) float64 {
	if t.at.IsZero() {
		return 0
	}
	return max(0, t.n-float64(now.Sub(t.at))/float64(wrongEvery))
}

// clientOf tells clients apart by their addresses, if these are theirs: what comes from this machine
// or its network may be a proxy.
func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Unmap().IsLoopback() || addr.Unmap().IsPrivate() {
		return ""
	}
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String()
	}
	return addr.String()
}
