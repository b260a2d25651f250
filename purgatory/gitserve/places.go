package gitserve

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// lane has the bounds for the requests of one kind. A request first is one of the
// readers, of which there may be many: they cost a connection and a file. Only what
// has been read, and of a push what has been judged, asks for a place, in which git
// runs.
type lane struct {
	readers, places chan struct{}
}

func newLane(readers, places int) lane {
	return lane{make(chan struct{}, readers), make(chan struct{}, places)}
}

// wait takes a token for a while.
func wait(ctx context.Context, tokens chan struct{}, most time.Duration) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case tokens <- struct{}{}:
		return sync.OnceFunc(func() { <-tokens }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// busy sends a client away that has waited for too long.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "30")
	http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
}

// clients bounds the requests of each client.
type clients struct {
	most int
	wait time.Duration

	mu sync.Mutex
	// guarded by mu
	known map[string]*client // those with a request only
}

type client struct {
	tokens   chan struct{}
	requests int // that are served, or wait
}

// enter waits until a client has fewer requests than it may; leave is called once.
func (c *clients) enter(ctx context.Context, name string) (leave func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	c.mu.Lock()
	one := c.known[name]
	if one == nil {
		one = &client{tokens: make(chan struct{}, c.most)}
		c.known[name] = one
	}
	one.requests++
	c.mu.Unlock()
	forget := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if one.requests--; one.requests == 0 {
			delete(c.known, name)
		}
	}
	free, err := wait(ctx, one.tokens, c.wait)
	if err != nil {
		forget()
		return nil, err
	}
	return func() {
		free()
		forget()
	}, nil
}

// remote is the public address that a request comes from, the first 64 bits of it if it
// is one of IPv6: everybody has as many of these as he likes. Behind another address
// there are usually many clients, since it is that of a proxy: they have no name.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() {
		return ""
	}
	if addr.Is4() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, 64).Masked().String()
}
