package egress

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

// Connect is the last step of a dial alone, without the earlier checks.
func Connect(ctx context.Context, d *Dialer, to netip.AddrPort) (net.Conn, error) {
	conn, _, err := d.connect(ctx, to.Addr().String(), to)
	return conn, err
}

// SetSocket replaces the socket beneath a Dialer.
func SetSocket(d *Dialer, socket func(ctx context.Context, to netip.AddrPort, check func(address string) error) (net.Conn, error)) {
	d.socket = socket
}

// CheckSocket is the check of the control hook.
func CheckSocket(d *Dialer, address string) error { return d.checkSocket(address) }

// NextHop is the URL that a 302 leads to, if it is followed.
func NextHop(d *Dialer, from, location string) (*url.URL, error) {
	req, err := http.NewRequest(http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	resp := &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {location}}}
	if err := (&guardedTransport{d: d}).checkRedirect(req, resp); err != nil {
		return nil, err
	}
	if location == "" {
		return nil, nil
	}
	return req.URL.Parse(location)
}

// Fixed and FixedBudget are what only tests set otherwise.
type (
	Fixed       = constants
	FixedBudget = budgetConstants
)

// Fixed returns it, to be changed.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy that has it.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}

// Fixed returns it, to be changed.
func (c *BudgetConfig) Fixed() *FixedBudget { return &c.fixed }

// With returns a copy that has it.
func (c BudgetConfig) With(f FixedBudget) BudgetConfig {
	c.fixed = f
	return c
}
