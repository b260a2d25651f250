package egress_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
)

// canary listens on one port of both loopback addresses. Nothing may connect to it.
type canary struct {
	port      uint16
	listeners []net.Listener
}

func newCanary(t *testing.T) *canary {
	t.Helper()
	for range 20 {
		four, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		port := four.Addr().(*net.TCPAddr).AddrPort().Port()
		six, err := net.Listen("tcp6", netip.AddrPortFrom(netip.IPv6Loopback(), port).String())
		if err != nil {
			require.NoError(t, four.Close()) // somebody else's port, or no IPv6 at all
			continue
		}
		c := &canary{port: port, listeners: []net.Listener{four, six}}
		t.Cleanup(func() {
			for _, l := range c.listeners {
				_ = l.Close()
			}
		})
		return c
	}
	require.Fail(t, "no port that is free on both loopback addresses")
	return nil
}

// silent fails the test if anything has connected. It connects and requires that this is the first
// accepted connection.
func (c *canary) silent(t *testing.T) {
	t.Helper()
	for _, l := range c.listeners {
		own, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		first, err := l.Accept()
		require.NoError(t, err)
		assert.Equal(t, own.LocalAddr().String(), first.RemoteAddr().String(), "somebody connected to the canary")
		require.NoError(t, first.Close())
		require.NoError(t, own.Close())
	}
}

// answers is a Resolver with fixed answers.
type answers struct {
	mu    sync.Mutex
	names map[string][]string // guarded by mu
	asked []string            // guarded by mu
}

func (a *answers) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, network+" "+host)
	list, ok := a.names[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	addrs := []netip.Addr{}
	for _, s := range list {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs, nil
}

func (a *answers) set(host string, addrs ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names[host] = addrs
}

// libc answers odd spellings of addresses as some C libraries do.
func libc() *answers {
	return &answers{names: map[string][]string{
		"127.1": {"127.0.0.1"}, "2130706433": {"127.0.0.1"}, "0x7f000001": {"127.0.0.1"}, "0x7f.1": {"127.0.0.1"},
		"0177.0.0.1": {"127.0.0.1"}, "017700000001": {"127.0.0.1"}, "127.0.0.01": {"127.0.0.1"}, "0": {"0.0.0.0"},
		"127.0.1": {"127.0.0.1"}, "0x7f.0x0.0x0.0x1": {"127.0.0.1"}, "127.0.0.0x1": {"127.0.0.1"},
		"localhost": {"127.0.0.1", "::1"},
	}}
}

// attempted returns a context, and the number of connections that were begun with it.
func attempted(t *testing.T) (context.Context, *atomic.Int64) {
	begun := new(atomic.Int64)
	return httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		ConnectStart: func(string, string) { begun.Add(1) },
	}), begun
}

func newDialer(t *testing.T, c egress.Config) *egress.Dialer {
	t.Helper()
	if c.Resolver == nil {
		c.Resolver = libc()
	}
	d, err := egress.NewDialer(c)
	require.NoError(t, err)
	return d
}

func newClient(t *testing.T, d *egress.Dialer) *http.Client {
	client := d.HTTPClient(0)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// serve starts an HTTP server on a loopback address other than the canary's.
func serve(t *testing.T, address string, h http.HandlerFunc) (s *httptest.Server, port string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	s = &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
	_, port, err = net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return s, port
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func discard() *log.Logger { return log.New(io.Discard, "", 0) }
