package gitfetch

import (
	"context"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"time"
)

// addresses count what has come from each address in 24 hours. Who has a domain has any
// number of names for one server, each of which may send as much as one may.
type addresses struct {
	most int64 // bytes

	mu    sync.Mutex
	spent map[netip.Prefix]*addressDay // guarded by mu
}

type addressDay struct {
	since time.Time
	bytes int64
}

const (
	// maxAddresses bounds those that are remembered.
	maxAddresses = 50_000
	addressTime  = 24 * time.Hour
)

// group is what counts as one address: of IPv6 a network that one host may have for itself.
func group(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // it has as many
	return p
}

// check returns an error if too much has come from an address.
func (s *addresses) check(a netip.Addr, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.spent[group(a)]; d != nil && now.Sub(d.since) < addressTime && d.bytes >= s.most {
		return &LimitError{Limit: "bytes of one address a day", Most: s.most}
	}
	return nil
}

// add charges an address with what came from it.
func (s *addresses) add(a netip.Addr, n int64, now time.Time) {
	if n == 0 || !a.IsValid() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spent == nil {
		s.spent = make(map[netip.Prefix]*addressDay)
	}
	g := group(a)
	if d := s.spent[g]; d != nil && now.Sub(d.since) < addressTime {
		d.bytes += n
		return
	}
	if len(s.spent) >= maxAddresses {
		for o := range s.spent { // any: to look for one whose day is over would take longer each time
			delete(s.spent, o)
			break
		}
	}
	s.spent[g] = &addressDay{since: now, bytes: n}
}

// peer learns which address a request goes to.
type peer struct {
	mu   sync.Mutex
	addr netip.Addr // guarded by mu
}

// trace has requests with a context tell the address that they go to.
func (p *peer) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if at, err := netip.ParseAddrPort(c.Conn.RemoteAddr().String()); err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.addr = at.Addr()
		}
	}})
}

func (p *peer) address() netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}
