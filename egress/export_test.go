package egress

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

// Connect makes the last step of a dial, without the earlier checks.
func Connect(ctx context.Context, d *Dialer, to netip.AddrPort) (net.Conn, error) {
	conn, _, err := d.connect(ctx, to.Addr().String(), to)
	return conn, err
}

// SetSocket replaces the function that opens sockets.
func SetSocket(d *Dialer, socket func(ctx context.Context, to netip.AddrPort, check func(address string) error) (net.Conn, error)) {
	d.socket = socket
}

// CheckSocket checks an address like the control hook of a socket.
func CheckSocket(d *Dialer, address string) error { return d.checkSocket(address) }

// NextHop returns the URL to which a 302 leads, or nil if it is not followed.
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

// Fixed and FixedBudget contain values that only tests change.
type (
	Fixed       = constants
	FixedBudget = budgetConstants
)

// Fixed returns the values, for changes.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy of c with other values.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}

// Fixed returns the values, for changes.
func (c *BudgetConfig) Fixed() *FixedBudget { return &c.fixed }

// With returns a copy of c with other values.
func (c BudgetConfig) With(f FixedBudget) BudgetConfig {
	c.fixed = f
	return c
}
