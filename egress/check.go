package egress

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/graspsync/graspsync"
)

func (d *Dialer) checkHostPort(a graspsync.HostPort) (literal netip.Addr, isLiteral bool, err error) {
	canonical, err := a.Canonical()
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	if slices.Contains(d.cfg.OwnNames, canonical) {
		return netip.Addr{}, false, fmt.Errorf("%w: %s", ErrOwn, canonical)
	}
	if d.cfg.Deny != nil && d.cfg.Deny(canonical) {
		return netip.Addr{}, false, fmt.Errorf("%w: %s", ErrDenied, canonical)
	}
	if !graspsync.DialablePort(a.Port) {
		return netip.Addr{}, false, fmt.Errorf("%w: port %d", ErrAddress, a.Port)
	}
	literal, err = netip.ParseAddr(canonical.Host)
	if err != nil {
		return netip.Addr{}, false, nil //nolint:nilerr // a name, not an address
	}
	local, err := d.localAddrs()
	if err != nil {
		return netip.Addr{}, false, err
	}
	return literal, true, d.checkAddress(netip.AddrPortFrom(literal, a.Port), local)
}

func (d *Dialer) checkSocket(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: no socket address: %q", ErrAddress, graspsync.Clip(address, 100))
	}
	local, err := d.localAddrs()
	if err != nil {
		return err
	}
	return d.checkAddress(to, local)
}

func (d *Dialer) localAddrs() ([]netip.Addr, error) {
	host, err := d.cfg.fixed.HostAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this host's addresses: %w", err)
	}
	return host, nil
}

// checkAddress is called by every dial. local contains the addresses of this host.
func (d *Dialer) checkAddress(to netip.AddrPort, local []netip.Addr) error {
	addr, port := to.Addr().Unmap(), to.Port()
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.Zone() != "":
		// The unspecified address connects to the loopback address of either family.
		return fmt.Errorf("%w: %s is not a destination", ErrAddress, addr)
	case !graspsync.DialablePort(port):
		return fmt.Errorf("%w: port %d", ErrAddress, port)
	}
	if err := d.checkDestination(addr, port, local); err != nil {
		return err
	}
	if inner, ok := embeddedIPv4(addr); ok {
		if err := d.checkAddress(netip.AddrPortFrom(inner, port), local); err != nil {
			return fmt.Errorf("%s carries another address: %w", addr, err)
		}
	}
	return nil
}

func (d *Dialer) checkDestination(addr netip.Addr, port uint16, local []netip.Addr) error {
	isLocal := slices.ContainsFunc(local, func(h netip.Addr) bool {
		return h.Unmap().WithZone("") == addr
	})
	for _, own := range d.cfg.Own {
		matchesAny := own.Addr().IsUnspecified() && (isLocal || addr.IsLoopback())
		if own.Port() == port && (matchesAny || own.Addr() == addr) {
			return fmt.Errorf("%w: %s", ErrOwn, netip.AddrPortFrom(addr, port))
		}
	}
	switch {
	case anyContains(d.cfg.Allow, addr):
		return nil
	case !Public(addr):
		return fmt.Errorf("%w: %s is not public, and no exception allows it", ErrAddress, addr)
	case isLocal:
		return fmt.Errorf("%w: %s is an address of this host", ErrAddress, addr)
	}
	return nil
}
