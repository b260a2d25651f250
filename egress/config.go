package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/graspsync/graspsync"
)

// Resolver resolves host names. [net.Resolver] is one.
//
// LookupNetIP is called concurrently, once per dial, with network "ip" and a lower-case ASCII name
// without a trailing dot. For a name without addresses it returns an error or an empty slice.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config configures a [Dialer]. The zero value allows public addresses over TLS.
type Config struct {
	// Allow lists prefixes that may be dialed although they are not public or belong to this host.
	// An IPv4 prefix covers IPv4-mapped addresses. An IPv4 address that an IPv6 address contains
	// otherwise, such as in 64:ff9b::/96, must be public or allowed too. Defaults to none.
	Allow []netip.Prefix

	// Own lists the listeners of this server. They are never dialed, even if Allow contains them. An
	// unspecified address means every address of this host. Defaults to none.
	Own []netip.AddrPort

	// OwnNames lists the public names of this server with ports, which are never dialed. Defaults to
	// none.
	OwnNames []graspsync.HostPort

	// Deny reports whether the operator blocked a host and port, in canonical spelling. It is called
	// concurrently, and must not block. Defaults to no blocks.
	Deny func(graspsync.HostPort) bool

	// AllowPlaintext accepts ws and http. A redirect from https to http is never followed. Defaults
	// to false.
	AllowPlaintext bool

	// Budget limits the connections of unproven hosts to one address. Defaults to a new Budget.
	Budget *Budget

	// BudgetAllowed makes the Budget also count addresses that Allow contains, for an overlay
	// network of strangers. Defaults to false.
	BudgetAllowed bool

	// Resolver resolves host names. Defaults to the resolver of the system.
	Resolver Resolver

	// RootCAs verifies server certificates. Defaults to the roots of the system.
	RootCAs *x509.CertPool

	fixed constants
}

// constants are values that only tests change.
type constants struct {
	// HostAddrs returns the addresses of this host. If it fails, nothing is dialed. Defaults to the
	// addresses of the network interfaces.
	HostAddrs func() ([]netip.Addr, error)
}

// withDefaults returns a copy that shares nothing that the caller may change.
func (c Config) withDefaults() Config {
	c.Allow, c.Own, c.OwnNames = slices.Clone(c.Allow), slices.Clone(c.Own), slices.Clone(c.OwnNames)
	for i, o := range c.Own {
		c.Own[i] = netip.AddrPortFrom(o.Addr().Unmap().WithZone(""), o.Port())
	}
	for i, n := range c.OwnNames {
		c.OwnNames[i], _ = n.Canonical() // valid
	}
	if c.Budget == nil {
		c.Budget = newBudget(BudgetConfig{}.withDefaults())
	}
	if c.Resolver == nil {
		c.Resolver = new(net.Resolver)
	}
	if c.fixed.HostAddrs == nil {
		c.fixed.HostAddrs = interfaceAddrs
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	for i, p := range c.Allow {
		switch {
		case !p.IsValid():
			errs = append(errs, fmt.Errorf("field Allow[%d]: not a prefix", i))
		case p.Addr().Is4In6():
			errs = append(errs, fmt.Errorf("field Allow[%d]: %s matches nothing, write it as IPv4", i, p))
		}
	}
	for i, o := range c.Own {
		if !o.IsValid() || o.Port() == 0 {
			errs = append(errs, fmt.Errorf("field Own[%d]: needs an address and a port", i))
		}
	}
	for i, n := range c.OwnNames {
		if _, err := n.Canonical(); err != nil || n.Port == 0 {
			errs = append(errs, fmt.Errorf("field OwnNames[%d]: needs a host and a port", i))
		}
	}
	return errors.Join(errs...)
}

func interfaceAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, addr.Unmap())
			}
		}
	}
	return addrs, nil
}
