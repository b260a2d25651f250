package egress

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/graspsync/graspsync"
)

// judge decides which addresses may be dialed. It is safe for concurrent use.
type judge struct {
	// set by newJudge, read-only
	allow     []netip.Prefix
	own       []netip.AddrPort
	ownNames  map[graspsync.HostPort]struct{}
	hostAddrs func() ([]netip.Addr, error)
	deny      func(graspsync.HostPort) bool // nil means no blocks
}

func newJudge(c Config) judge {
	j := judge{allow: c.Allow, ownNames: make(map[graspsync.HostPort]struct{}, len(c.OwnNames)), hostAddrs: c.fixed.HostAddrs, deny: c.Deny}
	for _, o := range c.Own {
		j.own = append(j.own, netip.AddrPortFrom(o.Addr().Unmap().WithZone(""), o.Port()))
	}
	for _, n := range c.OwnNames {
		if n, err := n.Canonical(); err == nil { // always nil, because n was validated
			j.ownNames[n] = struct{}{}
		}
	}
	return j
}

func (j *judge) hostPort(a graspsync.HostPort) (literal netip.Addr, isLiteral bool, err error) {
	canonical, err := a.Canonical()
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	if _, own := j.ownNames[canonical]; own {
		return netip.Addr{}, false, fmt.Errorf("%w: %s", ErrOwn, canonical)
	}
	if j.deny != nil && j.deny(canonical) {
		return netip.Addr{}, false, fmt.Errorf("%w: %s", ErrDenied, canonical)
	}
	if !graspsync.DialablePort(a.Port) {
		return netip.Addr{}, false, fmt.Errorf("%w: port %d", ErrAddress, a.Port)
	}
	literal, err = netip.ParseAddr(canonical.Host)
	if err != nil {
		return netip.Addr{}, false, nil //nolint:nilerr // a name, not an address
	}
	host, err := j.ours()
	if err != nil {
		return netip.Addr{}, false, err
	}
	return literal, true, j.address(netip.AddrPortFrom(literal, a.Port), host)
}

func (j *judge) socket(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: no socket address: %q", ErrAddress, graspsync.Clip(address, 100))
	}
	host, err := j.ours()
	if err != nil {
		return err
	}
	return j.address(to, host)
}

func (j *judge) ours() ([]netip.Addr, error) {
	host, err := j.hostAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this host's addresses: %w", err)
	}
	return host, nil
}

// address checks one address. host contains the addresses of this host. Every connection passes
// here.
func (j *judge) address(to netip.AddrPort, host []netip.Addr) error {
	addr, port := to.Addr().Unmap(), to.Port()
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.Zone() != "":
		// The unspecified address connects to the loopback address of either family.
		return fmt.Errorf("%w: %s is not a destination", ErrAddress, addr)
	case !graspsync.DialablePort(port):
		return fmt.Errorf("%w: port %d", ErrAddress, port)
	}
	if err := j.reachable(addr, port, host); err != nil {
		return err
	}
	if inner, ok := embedded(addr); ok {
		if err := j.address(netip.AddrPortFrom(inner, port), host); err != nil {
			return fmt.Errorf("%s carries another address: %w", addr, err)
		}
	}
	return nil
}

func (j *judge) reachable(addr netip.Addr, port uint16, host []netip.Addr) error {
	ofHost := slices.ContainsFunc(host, func(h netip.Addr) bool {
		return h.Unmap().WithZone("") == addr
	})
	for _, own := range j.own {
		everywhere := own.Addr().IsUnspecified() && (ofHost || addr.IsLoopback())
		if own.Port() == port && (everywhere || own.Addr() == addr) {
			return fmt.Errorf("%w: %s", ErrOwn, netip.AddrPortFrom(addr, port))
		}
	}
	switch {
	case within(j.allow, addr):
		return nil
	case !Public(addr):
		return fmt.Errorf("%w: %s is not public, and no exception allows it", ErrAddress, addr)
	case ofHost:
		return fmt.Errorf("%w: %s is an address of this host", ErrAddress, addr)
	}
	return nil
}
