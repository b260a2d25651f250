package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
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

const (
	// dialTimeout limits one dial, including the DNS lookup and all attempts.
	dialTimeout  = 10 * time.Second
	mostAttempts = 4 // maximum number of addresses per dial
)

// Dialer opens TCP connections that its [Config] permits. [NewDialer] makes it. It may be called
// concurrently.
type Dialer struct {
	cfg   Config // set by NewDialer, read-only
	judge judge
	// socket is openSocket, except in tests.
	socket func(ctx context.Context, to netip.AddrPort, judge func(address string) error) (net.Conn, error)
}

// NewDialer returns a Dialer. The error names every invalid field of c.
func NewDialer(c Config) (*Dialer, error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("egress config: %w", err)
	}
	c = c.withDefaults()
	return &Dialer{cfg: c, judge: newJudge(c), socket: openSocket}, nil
}

// Check checks a URL without DNS. The error wraps [graspsync.ErrURL] (u is zero), [ErrPlaintext] or
// [ErrAddress]. [Dialer.DialContext] may still refuse a name.
func (d *Dialer) Check(u graspsync.URL) error {
	isScheme := func(s graspsync.Scheme) bool { return s.Name == u.Scheme }
	if !slices.ContainsFunc(graspsync.RelaySchemes, isScheme) && !slices.ContainsFunc(graspsync.HTTPSchemes, isScheme) {
		return fmt.Errorf("%w: scheme %q", graspsync.ErrURL, graspsync.Clip(u.Scheme, 100))
	}
	if u.Plaintext() && !d.cfg.AllowPlaintext {
		return fmt.Errorf("%w: %s", ErrPlaintext, u.Scheme)
	}
	_, _, err := d.judge.hostPort(u.HostPort)
	return err
}

// DialContext connects to a host and decimal port over network "tcp", "tcp4" or "tcp6", within 10 s.
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
	if network != "tcp" && network != "tcp4" && network != "tcp6" {
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
	addrs = attempts(addrs, network)
	if len(addrs) == 0 {
		return nil, fmt.Errorf("no address for network %s", network)
	}
	addrs = d.cfg.Budget.order(target.Host, addrs)
	return inOrder(ctx, addrs, func(ctx context.Context, a netip.Addr) (net.Conn, error) {
		return d.connect(ctx, target.Host, netip.AddrPortFrom(a, target.Port))
	})
}

// resolve returns the addresses of a target. All of them are permitted.
func (d *Dialer) resolve(ctx context.Context, target graspsync.HostPort) ([]netip.Addr, error) {
	literal, isLiteral, err := d.judge.hostPort(target)
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
	host, err := d.judge.ours()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range answers {
		if a = a.Unmap(); slices.Contains(addrs, a) {
			continue
		}
		if err := d.judge.address(netip.AddrPortFrom(a, target.Port), host); err != nil {
			return nil, err
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}

// attempts selects the addresses to try. The families alternate, because one may have no route.
func attempts(addrs []netip.Addr, network string) []netip.Addr {
	var first, second []netip.Addr
	for _, a := range addrs {
		switch {
		case network == "tcp4" && !a.Is4(), network == "tcp6" && !a.Is6():
		case a.Is4() == addrs[0].Is4():
			first = append(first, a)
		default:
			second = append(second, a)
		}
	}
	var picked []netip.Addr
	for i := range max(len(first), len(second)) {
		picked = append(picked, first[min(i, len(first)):min(i+1, len(first))]...)
		picked = append(picked, second[min(i, len(second)):min(i+1, len(second))]...)
	}
	return picked[:min(len(picked), mostAttempts)]
}

func inOrder(ctx context.Context, addrs []netip.Addr,
	try func(context.Context, netip.Addr) (net.Conn, error),
) (net.Conn, error) {
	var errs, refused []error
	end, _ := ctx.Deadline()
	for i, a := range addrs {
		share, cancel := context.WithTimeout(ctx, time.Until(end)/time.Duration(len(addrs)-i))
		conn, err := try(share, a)
		cancel()
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, ErrBudget) {
			refused = append(refused, err)
		} else {
			errs = append(errs, err)
		}
		if _, spent := errors.AsType[*spentError](err); spent || errors.Is(err, ErrAddress) || ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 0 {
		errs = refused // no address was tried
	}
	return nil, errors.Join(errs...)
}

// Proven is [Budget.Proven].
func (d *Dialer) Proven(host string) { d.cfg.Budget.Proven(host) }

// Budget returns the Budget of the Dialer.
func (d *Dialer) Budget() *Budget { return d.cfg.Budget }

func (d *Dialer) connect(ctx context.Context, host string, to netip.AddrPort) (net.Conn, error) {
	var t *ticket
	conn, err := d.socket(ctx, to, func(address string) (err error) {
		if err := d.judge.socket(address); err != nil {
			return err
		}
		if at := d.charged(to.Addr()); t == nil && at.IsValid() { // the resolver calls twice for one connection
			t, err = d.cfg.Budget.begin(host, budgetPrefix(at))
		}
		return err
	})
	if t == nil {
		return conn, err
	}
	if err == nil {
		return &budgetedConn{Conn: conn, end: sync.OnceFunc(func() { d.cfg.Budget.end(t, true) })}, nil
	}
	routed := !errors.Is(err, syscall.ENETUNREACH) && !errors.Is(err, syscall.EAFNOSUPPORT) && !errors.Is(err, syscall.EADDRNOTAVAIL)
	d.cfg.Budget.end(t, routed)
	if routed {
		err = &spentError{err}
	}
	return nil, err
}

// spentError marks the error of the only attempt that an unproven host has per dial.
type spentError struct{ error }

func (e *spentError) Unwrap() error { return e.error }

// charged returns the address whose budget a connection uses, if any. It is zero for addresses that
// the operator allowed.
func (d *Dialer) charged(to netip.Addr) netip.Addr {
	to = to.Unmap()
	if inner, ok := embedded(to); ok {
		to = inner
	}
	if within(d.cfg.Allow, to) && !d.cfg.BudgetAllowed {
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
func openSocket(ctx context.Context, to netip.AddrPort, judge func(address string) error) (net.Conn, error) {
	socket := net.Dialer{
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error { return judge(address) },
	}
	return socket.DialContext(ctx, "tcp", to.String())
}
