package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
)

// Errors that a [Dialer] wraps. Another attempt does not help.
var (
	// ErrAddress means that an address, port or name must not be dialed.
	ErrAddress = errors.New("address not allowed")
	// ErrOwn means that the address is one of this server. It wraps ErrAddress.
	ErrOwn = fmt.Errorf("%w: own listener", ErrAddress)
	// ErrDenied means that [Config.Deny] blocks the host. It wraps ErrAddress.
	ErrDenied = fmt.Errorf("%w: blocked by the operator", ErrAddress)
	// ErrPlaintext means that the URL is without TLS and [Config.AllowPlaintext] is not set.
	ErrPlaintext = errors.New("plaintext not allowed by AllowPlaintext of egress.Config")
	// ErrRedirect means that a redirect was not followed.
	ErrRedirect = errors.New("redirect not allowed")
)

var errNoAddress = errors.New("the name has no address")

const (
	// dialTimeout limits one dial, including the DNS lookup and all attempts.
	dialTimeout = 10 * time.Second
	maxAttempts = 4 // maximum number of addresses per dial
)

// Dialer opens TCP connections that its [Config] permits. [NewDialer] makes it. It may be called
// concurrently.
type Dialer struct {
	cfg Config // set by NewDialer, read-only
	// socket is openSocket, except in tests.
	socket func(ctx context.Context, to netip.AddrPort, check func(address string) error) (net.Conn, error)
}

// NewDialer returns a Dialer. The error names every invalid field of c.
func NewDialer(c Config) (*Dialer, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("egress config: %w", err)
	}
	return &Dialer{cfg: c.withDefaults(), socket: openSocket}, nil
}

// Check checks a URL without DNS. The error wraps [graspsync.ErrURL] (u is zero), [ErrPlaintext] or
// [ErrAddress]. [Dialer.DialContext] may still refuse a name.
func (d *Dialer) Check(u graspsync.URL) error {
	if !slices.Contains(graspsync.RelaySchemes, u.Scheme) && !slices.Contains(graspsync.HTTPSchemes, u.Scheme) {
		return fmt.Errorf("%w: scheme %q", graspsync.ErrURL, graspsync.Clip(u.Scheme, 100))
	}
	if u.Plaintext() && !d.cfg.AllowPlaintext {
		return fmt.Errorf("%w: %s", ErrPlaintext, u.Scheme)
	}
	_, _, err := d.checkHostPort(u.HostPort)
	return err
}

// DialContext connects to a host and decimal port over network "tcp", within 10 s.
// If any address of a name must not be dialed, none is. Up to four addresses are tried in turn; for
// an unproven host (see [Budget]) one per dial. The errors are those of [Dialer.Check], of the
// resolver and of the network, or wrap [ErrBudget].
func (d *Dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("dialing %q: %w", graspsync.Clip(addr, 100), err)
	}
	return conn, nil
}

func (d *Dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if network != "tcp" {
		return nil, fmt.Errorf("%w: network %q", ErrAddress, graspsync.Clip(network, 100))
	}
	target, err := graspsync.ParseHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	addrs, err := d.resolve(ctx, target)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, errNoAddress
	}
	addrs = d.cfg.Budget.sortByLastAttempt(target.Host, selectAddresses(addrs))
	return dialInTurn(ctx, addrs, func(ctx context.Context, a netip.Addr) (conn net.Conn, last bool, err error) {
		return d.connect(ctx, target.Host, netip.AddrPortFrom(a, target.Port))
	})
}

// resolve returns the addresses of a target. All of them are permitted.
func (d *Dialer) resolve(ctx context.Context, target graspsync.HostPort) ([]netip.Addr, error) {
	literal, isLiteral, err := d.checkHostPort(target)
	if err != nil {
		return nil, err
	}
	if isLiteral {
		return []netip.Addr{literal}, nil
	}
	if !target.Resolvable() {
		return nil, fmt.Errorf("%w: public DNS has no such name", ErrAddress)
	}
	answers, err := d.cfg.Resolver.LookupNetIP(ctx, "ip", target.Host)
	if err != nil {
		return nil, err //nolint:wrapcheck // a DNSError names the lookup
	}
	local, err := d.localAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range answers {
		if a = a.Unmap(); slices.Contains(addrs, a) {
			continue
		}
		if err := d.checkAddress(netip.AddrPortFrom(a, target.Port), local); err != nil {
			return nil, err
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// selectAddresses returns the addresses to try. IPv4 and IPv6 alternate, because one of them may
// have no route.
func selectAddresses(addrs []netip.Addr) (picked []netip.Addr) {
	var families [2][]netip.Addr
	for _, a := range addrs {
		i := 0
		if a.Is4() != addrs[0].Is4() {
			i = 1
		}
		families[i] = append(families[i], a)
	}
	for i := range addrs {
		for _, f := range families {
			if i < len(f) {
				picked = append(picked, f[i])
			}
		}
	}
	return picked[:min(len(picked), maxAttempts)]
}

// dialInTurn tries one address after another, each for an equal part of the remaining time.
func dialInTurn(ctx context.Context, addrs []netip.Addr,
	try func(context.Context, netip.Addr) (conn net.Conn, last bool, err error),
) (net.Conn, error) {
	var errs, refused []error
	end, _ := ctx.Deadline()
	for i, a := range addrs {
		share, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(addrs)-i))
		conn, last, err := try(share, a)
		cancel()
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, ErrBudget) {
			refused = append(refused, err)
		} else {
			errs = append(errs, err)
		}
		if last || errors.Is(err, ErrAddress) || ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 0 {
		errs = refused // no address was tried
	}
	return nil, errors.Join(errs...)
}

// MarkProven is [Budget.MarkProven].
func (d *Dialer) MarkProven(host string) { d.cfg.Budget.MarkProven(host) }

// Budget returns the Budget of the Dialer.
func (d *Dialer) Budget() *Budget { return d.cfg.Budget }

// connect makes one attempt. last is true if it was the only one per dial of an unproven host.
func (d *Dialer) connect(ctx context.Context, host string, to netip.AddrPort) (conn net.Conn, last bool, err error) {
	var r *reservation
	conn, err = d.socket(ctx, to, func(address string) (err error) {
		if err := d.checkSocket(address); err != nil {
			return err
		}
		if at := d.budgetAddr(to.Addr()); r == nil && at.IsValid() { // net.Dialer may try one address again
			r, err = d.cfg.Budget.reserve(host, budgetPrefix(at))
		}
		return err
	})
	if r == nil {
		return conn, false, err
	}
	if err == nil {
		return &budgetedConn{Conn: conn, end: func() { d.cfg.Budget.release(r, true) }}, true, nil
	}
	sent := !errors.Is(err, syscall.ENETUNREACH) && !errors.Is(err, syscall.EAFNOSUPPORT) && !errors.Is(err, syscall.EADDRNOTAVAIL)
	d.cfg.Budget.release(r, sent)
	return nil, sent, err
}

// budgetAddr returns the address whose budget a connection uses, or zero if the operator allowed
// the address.
func (d *Dialer) budgetAddr(to netip.Addr) netip.Addr {
	to = to.Unmap()
	if inner, ok := embeddedIPv4(to); ok {
		to = inner
	}
	if anyContains(d.cfg.Allow, to) && !d.cfg.BudgetAllowed {
		return netip.Addr{}
	}
	return to
}

// budgetedConn reports its end to the Budget.
type budgetedConn struct {
	net.Conn
	end func()
}

// Close closes the connection and releases its part of the budget.
func (c *budgetedConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// openSocket is the only function that opens a socket.
func openSocket(ctx context.Context, to netip.AddrPort, check func(address string) error) (net.Conn, error) {
	socket := net.Dialer{
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error { return check(address) },
	}
	return socket.DialContext(ctx, "tcp", to.String())
}
