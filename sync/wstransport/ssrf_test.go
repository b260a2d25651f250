package wstransport_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// names is a Resolver.
type names map[string][]netip.Addr

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if list, ok := n[host]; ok {
		return append([]netip.Addr(nil), list...), nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// listening counts what connects to a loopback address, of either family, at one
// port.
func listening(t *testing.T) (port string, heard *atomic.Int64) {
	t.Helper()
	heard = new(atomic.Int64)
	count := func(l net.Listener) {
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				heard.Add(1)
				_ = conn.Close()
			}
		}()
	}
	for range 20 {
		four, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		_, port, err = net.SplitHostPort(four.Addr().String())
		require.NoError(t, err)
		six, err := net.Listen("tcp6", "[::1]:"+port)
		if err != nil { // somebody else's
			require.NoError(t, four.Close())
			continue
		}
		count(four)
		count(six)
		return port, heard
	}
	require.Fail(t, "no port that is free on both loopback addresses")
	return "", nil
}

// The same corpus as in package egress, as relays and as what a relay's NIP-11
// document redirects to.
func TestSSRFThroughTransport(t *testing.T) {
	data, err := os.ReadFile("../../egress/testdata/ssrf.txt")
	require.NoError(t, err)
	port, heard := listening(t)
	resolver := names{"own.example": {netip.MustParseAddr("127.0.0.2")}, "localhost": {netip.MustParseAddr("127.0.0.1")}, "relay.example": {netip.MustParseAddr("10.0.0.1")}}
	var hosts []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "# ") {
			continue
		}
		if list, ok := strings.CutPrefix(line, "= "); ok {
			line = fmt.Sprintf("answer%d.example", len(hosts))
			for _, a := range strings.Fields(list) {
				resolver[line] = append(resolver[line], netip.MustParseAddr(a))
			}
		}
		hosts = append(hosts, line)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	require.NoError(t, err)
	var target atomic.Value
	l, err := net.Listen("tcp", "127.0.0.2:0")
	require.NoError(t, err)
	var asked atomic.Int64
	relay := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			asked.Add(1)
			http.Redirect(w, r, target.Load().(string), http.StatusFound)
			return
		}
		if ws, err := websocket.Accept(w, r, nil); err == nil {
			_, _, _ = ws.Read(r.Context())
		}
	})}
	go func() { _ = relay.Serve(l) }()
	t.Cleanup(func() { _ = relay.Close() })

	transport := newTransport(t, func(c *wstransport.Config) {
		c.Dialer = newDialer(t, egress.Config{
			Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, Resolver: resolver, AllowPlaintext: true,
			OwnNames: []graspsync.HostPort{{Host: "own.example", Port: uint16(n)}},
		})
	})
	redirecting := relayURL(t, "ws://"+l.Addr().String())
	parsed := 0
	for _, host := range hosts {
		for _, scheme := range []string{"ws://", "wss://"} {
			u, err := graspsync.ParseRelayURL(scheme + host + ":" + port)
			if err != nil {
				continue
			}
			parsed++
			_, err = transport.Dial(testContext(t), u)
			assert.ErrorIs(t, err, relaysync.ErrForbidden, "%s", u)
		}
		target.Store("http://" + host + ":" + port + "/")
		c := dial(t, transport, redirecting)
		<-c.InfoKnown()
		assert.Zero(t, c.Info())
		require.NoError(t, c.Close())
	}
	assert.GreaterOrEqual(t, asked.Load(), int64(len(hosts)), "each redirect was offered")
	assert.Zero(t, heard.Load(), "connections to the canary")
	t.Logf("SSRF: %d spellings and DNS answers, %d of them readable as relay URLs, %d redirects: %d connections",
		len(hosts), parsed, asked.Load(), heard.Load())
}
