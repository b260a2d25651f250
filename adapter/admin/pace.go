package admin

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/graspsync/graspsync/limit"
)

const (
	// wrongMost is the number of successive wrong requests after which a client may send one per
	// wrongEvery.
	wrongMost  = 20
	wrongEvery = 3 * time.Second
	// checksPerSecond is the number of checked signatures per second of all such clients.
	checksPerSecond = 20
	// maxClients is the maximum number of remembered clients.
	maxClients = 10_000
)

// pace limits wrong requests by client. Valid requests are not counted. Clients of unknown address
// never wait, because one may be the owner.
type pace struct {
	// checks limits signature checks of clients that must wait, because their requests cost nothing
	// to forge. An owner at the address of a client that uses all checks is served when that client
	// pauses.
	checks *rate.Limiter

	mu      sync.Mutex
	clients *limit.Table[string, *rate.Limiter] // guarded by mu
}

func newPace() *pace {
	return &pace{
		checks:  rate.NewLimiter(checksPerSecond, checksPerSecond),
		clients: limit.NewTable[string, *rate.Limiter](maxClients, 0),
	}
}

// wait returns the time for which requests of a client are refused.
func (p *pace) wait(client string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tries, ok := p.clients.Get(client); ok {
		return time.Duration(max(0, 1-tries.TokensAt(now)) * float64(wrongEvery))
	}
	return 0
}

// wrong counts a refused request.
func (p *pace) wrong(client string, now time.Time) {
	if client == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	tries, ok := p.clients.Get(client)
	if !ok {
		tries = rate.NewLimiter(rate.Every(wrongEvery), wrongMost)
	}
	tries.AllowN(now, 1)
	p.clients.Put(client, limit.Stranger{ID: client}, 0, tries)
}

// clientOf returns the address of a client if it is public, because other addresses may be a proxy.
func clientOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Unmap().IsLoopback() || addr.Unmap().IsPrivate() {
		return ""
	}
	return limit.Client(addr).ID
}
