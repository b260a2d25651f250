package egress

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/graspsync/graspsync"
)

// judgeHostPort judges what can be judged without DNS. If the host is an address
// it is returned, and was judged.
func (d *Dialer) judgeHostPort(a graspsync.HostPort) (literal netip.Addr, isLiteral bool, err error) {
	canonical, err := a.Canonical()
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	if _, own := d.ownNames[canonical]; own {
		return netip.Addr{}, false, fmt.Errorf("%w: %s", ErrOwn, canonical)
	}
	if !graspsync.DialablePort(a.Port) {
		return netip.Addr{}, false, fmt.Errorf("%w: port %d", ErrAddress, a.Port)
	}
	literal, err = netip.ParseAddr(canonical.Host)
	if err != nil {
		return netip.Addr{}, false, nil //nolint:nilerr // it is a name, not an address
	}
	host, err := d.hostAddrs()
	if err != nil {
		return netip.Addr{}, false, err
	}
	return literal, true, d.judge(netip.AddrPortFrom(literal, a.Port), host)
}

// judgeSocket judges the address that a socket is about to connect to.
func (d *Dialer) judgeSocket(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: no socket address: %q", ErrAddress, graspsync.Clip(address, 100))
	}
	host, err := d.hostAddrs()
	if err != nil {
		return err
	}
	return d.judge(to, host)
}

func (d *Dialer) hostAddrs() ([]netip.Addr, error) {
	host, err := d.cfg.fixed.HostAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this host's addresses: %w", err)
	}
	return host, nil
}

// judge decides about one address; host are this host's own. Everything that
// connects comes through here.
func (d *Dialer) judge(to netip.AddrPort, host []netip.Addr) error {
	addr, port := to.Addr().Unmap(), to.Port()
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.Zone() != "":
		// The unspecified address is this host, the loopback of either family.
		return fmt.Errorf("%w: %s is no destination", ErrAddress, addr)
	case !graspsync.DialablePort(port):
		return fmt.Errorf("%w: port %d", ErrAddress, port)
	}
	if err := d.judgeAddr(addr, port, host); err != nil {
		return err
	}
	if inner, ok := embedded(addr); ok {
		if err := d.judge(netip.AddrPortFrom(inner, port), host); err != nil {
			return fmt.Errorf("%s carries another address: %w", addr, err)
		}
	}
	return nil
}

func (d *Dialer) judgeAddr(addr netip.Addr, port uint16, host []netip.Addr) error {
	ofHost := slices.ContainsFunc(host, func(h netip.Addr) bool {
		return h.Unmap().WithZone("") == addr
	})
	for _, own := range d.cfg.Own {
		everywhere := own.Addr().IsUnspecified() && (ofHost || addr.IsLoopback())
		if own.Port() == port && (everywhere || own.Addr() == addr) {
			return fmt.Errorf("%w: %s", ErrOwn, netip.AddrPortFrom(addr, port))
		}
	}
	switch {
	case within(d.cfg.Allow, addr):
		return nil
	case !Public(addr):
		return fmt.Errorf("%w: %s is not public, and not among Config.Allow", ErrAddress, addr)
	case ofHost:
		return fmt.Errorf("%w: %s is an address of this host", ErrAddress, addr)
	}
	return nil
}
