package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/graspsync/graspsync"
)

// Resolver answers the one DNS question of a dial. [net.Resolver] is one.
//
// LookupNetIP is called concurrently, with network "ip" (addresses of both
// families) and a name that is lower-case ASCII without a trailing dot. It returns
// when it has an answer, has failed, or ctx is done; nothing else bounds it, and
// it is not called again for the same dial. The returned slice belongs to the
// caller. For a name without addresses it returns an error or nothing.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config says what a [Dialer] may reach. The zero value reaches public addresses
// over TLS.
type Config struct {
	// Allow lists what may be dialed although it is not public, or is an address
	// of this host. Too wide a prefix gives strangers' URLs the internal network.
	// An IPv4 prefix covers IPv4-mapped addresses, and is written as IPv4. For the
	// other forms that carry an IPv4 address (64:ff9b::/96 on a network with
	// NAT64) the carried address must be public or allowed as well.
	// Defaults to none.
	Allow []netip.Prefix

	// Own lists our own listeners: they are never dialed, even where Allow opens
	// their address. An unspecified address (0.0.0.0 or ::) stands for every
	// address of this host, of both families, at that port. If one is missing,
	// a relay on an allowed address may be made to sync from itself.
	// Defaults to none.
	Own []netip.AddrPort

	// OwnNames lists the names under which others reach us, with their ports:
	// never dialed either, though the address may be that of a proxy or of a
	// router before us. Names are compared whole. Defaults to none.
	OwnNames []graspsync.HostPort

	// Deny reports whether nothing is to be connected to at a host and port, both in their one
	// spelling: what an operator has blocked. It is asked before each dial and each redirect,
	// must be safe for concurrent use and must not block; its answer may change. What stands
	// already stays. Defaults to nothing.
	Deny func(graspsync.HostPort) bool

	// AllowPlaintext lets [Dialer.Check] and the HTTP client accept ws and http.
	// It does not weaken the rule that a redirect never leaves https for http.
	// Defaults to false.
	AllowPlaintext bool

	// Budget bounds what unproven hosts may bring one address. Dialers that reach
	// the same strangers share one. Defaults to one of this Dialer with the default
	// bounds.
	Budget *Budget

	// BudgetAllowed has Budget count addresses of Allow too, for networks of strangers whose
	// addresses are not public, such as an overlay. Defaults to false:
	// what the operator has opened may be dialed as often as callers like.
	BudgetAllowed bool

	// Resolver answers DNS questions. Defaults to the system's resolver.
	Resolver Resolver

	// RootCAs is what server certificates of the HTTP client are checked against.
	// Defaults to the system's.
	RootCAs *x509.CertPool

	fixed constants
}

// constants are what only tests have otherwise.
type constants struct {
	// HostAddrs returns the addresses of this host. It is called at least twice
	// per dial and must not block; when it fails, nothing is dialed. Defaults to
	// the addresses of the network interfaces.
	HostAddrs func() ([]netip.Addr, error)
}

// withDefaults returns a copy that shares nothing that the caller may change.
func (c Config) withDefaults() Config {
	c.Allow = append([]netip.Prefix(nil), c.Allow...)
	c.Own = append([]netip.AddrPort(nil), c.Own...)
	c.OwnNames = append([]graspsync.HostPort(nil), c.OwnNames...)
	if c.Budget == nil {
		c.Budget = &Budget{ledger: newLedger(BudgetConfig{}.withDefaults())}
	}
	if c.Resolver == nil {
		c.Resolver = new(net.Resolver)
	}
	if c.fixed.HostAddrs == nil {
		c.fixed.HostAddrs = interfaceAddrs
	}
	if c.RootCAs != nil {
		c.RootCAs = c.RootCAs.Clone()
	}
	return c
}

// validate names every bad field.
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
