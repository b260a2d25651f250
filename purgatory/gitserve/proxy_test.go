package gitserve_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Clients are identified by headers of trusted proxies, and never by headers of clients.
func TestBehindProxy(t *testing.T) {
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	ours := prefixes("127.0.0.1/32", "192.0.2.0/24", "2a00:1::/32")
	for _, c := range []struct {
		name, header, from string
		networks           []netip.Prefix
		said               []string
		want               string
	}{
		{"one proxy", "X-Forwarded-For", "127.0.0.1:1", ours, []string{"8.8.8.8"}, "8.8.8.8"},
		{"what the client said comes first", "X-Forwarded-For", "127.0.0.1:1", ours, []string{"1.1.1.1, 8.8.8.8"}, "8.8.8.8"},
		{"in a header of its own", "X-Forwarded-For", "127.0.0.1:1", ours, []string{"1.1.1.1", "8.8.8.8"}, "8.8.8.8"},
		{"two proxies", "X-Forwarded-For", "127.0.0.1:1", ours, []string{"1.1.1.1, 8.8.8.8, 192.0.2.7"}, "8.8.8.8"},
		{"with a port", "X-Forwarded-For", "127.0.0.1:1", ours, []string{"8.8.8.8:4711"}, "8.8.8.8"},
		{"of IPv6", "X-Forwarded-For", "[2a00:1::5]:1", ours, []string{"[2a00:2::9]:443"}, "2a00:2::9"},
		{"of IPv6 without a port", "X-Forwarded-For", "[2a00:1::5]:1", ours, []string{"2a00:2::9"}, "2a00:2::9"},
		{"mapped", "X-Forwarded-For", "[::ffff:127.0.0.1]:1", ours, []string{"::ffff:8.8.8.8"}, "8.8.8.8"},
		{"the proxy itself", "X-Forwarded-For", "127.0.0.1:1", ours, []string{"192.0.2.7"}, "192.0.2.7"},
		{"a stranger is not believed", "X-Forwarded-For", "9.9.9.9:1", ours, []string{"8.8.8.8"}, "9.9.9.9"},
		{"nor one of our network", "X-Forwarded-For", "10.0.0.1:1", ours, []string{"8.8.8.8"}, "10.0.0.1"},
		{"nothing is said", "X-Forwarded-For", "127.0.0.1:1", ours, nil, ""},
		{"nor an address", "X-Forwarded-For", "127.0.0.1:1", ours, []string{"8.8.8.8, unknown"}, ""},
		{"another header", "X-Real-IP", "127.0.0.1:1", ours, []string{"8.8.8.8"}, "8.8.8.8"},
		{"no networks: one that is not public", "X-Forwarded-For", "172.17.0.1:1", nil, []string{"8.8.8.8, 10.0.0.3"}, "8.8.8.8"},
		{"no networks: one that is", "X-Forwarded-For", "9.9.9.9:1", nil, []string{"8.8.8.8"}, "9.9.9.9"},
		{"no address", "X-Forwarded-For", "@", ours, []string{"8.8.8.8"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = c.from
			for _, s := range c.said {
				r.Header.Add(c.header, s)
			}
			require.Equal(t, c.want, gitserve.BehindProxy(c.header, c.networks...)(r))
		})
	}
}

// proxied puts a proxy before a server. It reuses connections and appends the client's address to
// the header.
func (r *rig) proxied(t *testing.T) *url.URL {
	t.Helper()
	at, err := url.Parse(r.url)
	require.NoError(t, err)
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(at)
			p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
			p.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 32},
	})
	t.Cleanup(proxy.Close)
	u, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	return u
}

// from dials from a loopback address.
func from(t *testing.T, ip string, to *url.URL) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	conn, err := d.DialContext(t.Context(), "tcp", to.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// who tells clients of the proxy apart, whose own address is another one.
var behind = gitserve.BehindProxy(gitserve.DefaultClientHeader, netip.MustParsePrefix("127.0.0.1/32"))

// Behind a proxy all clients were unnamed, so one client could take all slots. With names, each
// client has its part.
func TestOneClientBehindAProxyLeavesPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		client func(*http.Request) string
		next   int
	}{"no names": {nil, http.StatusServiceUnavailable}, "names": {behind, http.StatusOK}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gitserve.Config{Client: c.client}.With(gitserve.Fixed{MaxReaders: 8, MaxPerClient: 4, Wait: 200 * time.Millisecond, RateWindow: 5 * time.Minute}))
			proxy := r.proxied(t)
			for i := range 8 {
				conn := from(t, "127.0.0.3", proxy)
				_, err := fmt.Fprintf(conn, "POST /%s/x.git/%s HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 8.8.%d.8\r\nContent-Length: 9\r\n\r\n0", owner.Npub(), uploadPack, i)
				require.NoError(t, err)
			}
			most := 8
			if c.client != nil {
				most = 4
			}
			r.taken(t, "requests", "fetch", most)
			conn := from(t, "127.0.0.2", proxy)
			_, err := fmt.Fprintf(conn, "POST /%s/x.git/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n0000", owner.Npub(), uploadPack)
			require.NoError(t, err)
			require.Equal(t, c.next, status(t, conn))
		})
	}
}
