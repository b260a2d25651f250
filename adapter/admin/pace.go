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
	// wrongMost is how often in a row a client may be wrong, and wrongEvery after what time once
	// more.
	wrongMost  = 20
	wrongEvery = 3 * time.Second
	// checksPerSecond is how many signatures of clients that are over are checked, of all of them.
	checksPerSecond = 20
	// maxClients bounds the clients that are remembered.
	maxClients = 10_000
)

// pace says whether a client may try once more. Requests that are right are not counted. Clients of unknown
// address are never made to wait, because one of them may be the owner.
type pace struct {
	// checks are signatures of clients that wait. Forging what is looked at before costs nothing, so there is a
	// bound; an owner beside a client that uses all of it is served again when that client pauses.
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

// wait returns for how long requests of a client are refused; 0: it may try.
func (p *pace) wait(client string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tries, ok := p.clients.Get(client); ok {
		return time.Duration(max(0, 1-tries.TokensAt(now)) * float64(wrongEvery))
	}
	return 0
}

// wrong counts a request that was refused.
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

// clientOf tells clients apart by their addresses, if these are theirs: a client on this machine
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
	return limit.Client(addr).ID
}
