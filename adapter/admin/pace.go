package admin

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

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

// pace says whether a client may try once more. Who is right is not counted. Those whom we can't
// tell apart are never made to wait: one of them may be the owner.
type pace struct {
	mu      sync.Mutex
	clients *limit.Table[string, tries] // guarded by mu
	checked tries                       // guarded by mu; of those who were over, one less after each part of a second
}

// tries is how often a client was wrong, as of a time; it is forgiven with time.
type tries struct {
	n  float64
	at time.Time
}

func newPace() *pace { return &pace{clients: limit.NewTable[string, tries](maxClients, 0)} }

// wait returns for how long a client is not heard; 0: it may try.
func (p *pace) wait(client string, now time.Time) time.Duration {
	if client == "" {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t, _ := p.clients.Get(client)
	if over := t.left(now, wrongEvery) - (wrongMost - 1); over > 0 {
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
	p.clients.Put(client, limit.Stranger{}, 0, tries{min(wrongMost, t.left(now, wrongEvery)+1), now})
}

// check reports whether a signature of a client that is over may be checked. Forging what is looked at
// before costs nothing, so there is a bound; an owner beside who uses all of that is heard again when
// that one pauses.
func (p *pace) check(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.checked.left(now, time.Second/checksPerSecond)
	if n > checksPerSecond-1 {
		return false
	}
	p.checked = tries{n + 1, now}
	return true
}

// left is how often a client was wrong, less what it was forgiven since: one after each so long.
func (t tries) left(now time.Time, each time.Duration) float64 {
	if t.at.IsZero() {
		return 0
	}
	return max(0, t.n-float64(now.Sub(t.at))/float64(each))
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
