package egress_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
)

// ssrfCorpus returns the hosts of testdata/ssrf.txt, and a resolver for those that are DNS answers.
func ssrfCorpus(t *testing.T) (hosts []string, resolver *answers) {
	t.Helper()
	data, err := os.ReadFile("testdata/ssrf.txt")
	require.NoError(t, err)
	resolver = libc()
	resolver.set("own.example", "127.0.0.2")
	resolver.set("relay.example", "10.0.0.1") // what some lines lead to, and not where they pretend
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "# ") || line == "" {
			continue
		}
		if list, ok := strings.CutPrefix(line, "= "); ok {
			line = "answer" + strconv.Itoa(len(hosts)) + ".example"
			resolver.set(line, strings.Fields(list)...)
		}
		hosts = append(hosts, line)
	}
	return hosts, resolver
}

// rebinding gives a good answer first, and then a bad one.
type rebinding struct {
	good string
	bad  *answers
	host string
	n    atomic.Int64
}

func (r *rebinding) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if r.n.Add(1)%2 == 1 {
		return []netip.Addr{netip.MustParseAddr(r.good)}, nil
	}
	return r.bad.LookupNetIP(ctx, network, r.host)
}

// R16: no URL of a stranger and no DNS answer leads to a connection to an address that is not public
// or is ours.
func TestSSRFCorpus(t *testing.T) {
	hosts, resolver := ssrfCorpus(t)
	c := newCanary(t)
	port := strconv.Itoa(int(c.port))
	var target atomic.Value
	_, start := serve(t, "127.0.0.2:0", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", target.Load().(string))
		w.WriteHeader(http.StatusFound)
	})
	d := newDialer(t, egress.Config{
		Allow: prefixes("127.0.0.2/32"), Resolver: resolver, AllowPlaintext: true,
		Own:      []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:" + port)},
		OwnNames: []graspsync.HostPort{{Host: "own.example", Port: c.port}},
	})
	client := newClient(t, d)
	tried, connections := 0, int64(0)
	for _, host := range hosts {
		address := host + ":" + port
		for _, way := range []struct {
			name    string
			schemes []string
			prefix  string
		}{{"relay", graspsync.RelaySchemes, "ws://"}, {"relay", graspsync.RelaySchemes, "wss://"}, {"clone", graspsync.HTTPSchemes, "https://"}} {
			tried++
			u, err := graspsync.ParseURL(way.prefix+address+"/x", way.schemes)
			if err != nil {
				continue
			}
			ctx, begun := attempted(t)
			_, err = d.DialContext(ctx, "tcp", u.HostPort.String())
			assert.ErrorIs(t, err, egress.ErrAddress, "%s %s", way.name, host)
			connections += begun.Load()
		}
		ctx, begun := attempted(t)
		tried++
		_, err := d.DialContext(ctx, "tcp", address)
		assert.Error(t, err, "unparsed %s", host)
		for _, scheme := range []string{"http://", "https://"} {
			tried++
			_, err = get(ctx, client, scheme+address+"/")
			assert.Error(t, err, "NIP-11 %s", host)
		}
		connections += begun.Load()
		ctx, begun = attempted(t)
		tried++
		target.Store("http://" + address + "/")
		_, err = get(ctx, client, "http://127.0.0.2:"+start)
		assert.True(t, isRefusal(err) || errors.Is(err, egress.ErrRedirect), "redirect to %s: %v", host, err)
		connections += max(0, begun.Load()-1) // the first one is permitted
	}
	for _, q := range resolver.asked {
		assert.NotRegexp(t, `[ .](0x[0-9a-f]*|[0-9]+)$`, q, "a resolver was asked about a number")
	}
	connections += rebind(t, hosts, resolver, port)
	c.silent(t)
	assert.GreaterOrEqual(t, len(hosts), 150)
	assert.Zero(t, connections, "connections begun")
	assert.Zero(t, proxied.Load(), "connections to the proxy of the environment")
	t.Logf("SSRF: %d spellings and DNS answers, %d attempts, %d connections", len(hosts), tried, connections)
}

// rebind dials again each name whose first answer was good.
func rebind(t *testing.T, hosts []string, resolver *answers, port string) (connections int64) {
	for _, host := range hosts {
		if !strings.HasPrefix(host, "answer") {
			continue
		}
		r := &rebinding{good: "127.0.0.2", bad: resolver, host: host}
		d := newDialer(t, egress.Config{Allow: prefixes("127.0.0.2/32"), Resolver: r})
		l, err := net.Listen("tcp", "127.0.0.2:0")
		require.NoError(t, err)
		_, good, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		conn, err := d.DialContext(t.Context(), "tcp", "rebind.example:"+good)
		require.NoError(t, err, "the good answer")
		require.NoError(t, conn.Close())
		require.NoError(t, l.Close())
		ctx, begun := attempted(t)
		_, err = d.DialContext(ctx, "tcp", "rebind.example:"+port)
		assert.ErrorIs(t, err, egress.ErrAddress, "rebound to %s", host)
		connections += begun.Load()
	}
	return connections
}

// Each redirect is checked, none leaves https, and their number is limited.
func TestSSRFRedirects(t *testing.T) {
	for _, row := range []struct {
		from, to string
		ok       bool
	}{
		{"https://8.8.8.8/", "https://9.9.9.9/", true}, {"http://8.8.8.8/", "https://9.9.9.9/", true}, {"https://8.8.8.8/", "/x", true},
		{"https://8.8.8.8/", "http://9.9.9.9/", false}, {"https://8.8.8.8/", "//10.0.0.1/", false}, {"http://8.8.8.8/", "http://10.0.0.1/", false},
		{"http://8.8.8.8/", "http://169.254.169.254/latest/meta-data/", false}, {"https://8.8.8.8/", "https://[::ffff:127.0.0.1]/", false},
		{"https://8.8.8.8/", "https://2130706433/", false}, {"https://8.8.8.8/", "https://u:p@9.9.9.9/", false}, {"https://8.8.8.8/", "ftp://9.9.9.9/", false},
		{"https://8.8.8.8/", "file:///etc/passwd", false}, {"https://8.8.8.8/", "https://9.9.9.9:22/", false}, {"https://8.8.8.8/", "gopher://9.9.9.9:6379/_x", false},
	} {
		d := newDialer(t, egress.Config{AllowPlaintext: true})
		_, err := egress.NextHop(d, row.from, row.to)
		assert.Equal(t, row.ok, err == nil, "%s to %s: %v", row.from, row.to, err)
	}
}

// Honest URLs in spellings as odd as those of the corpus are accepted.
func TestSSRFControls(t *testing.T) {
	resolver := &answers{names: map[string][]string{}}
	for _, host := range []string{
		"relay.example", "evil-own.example", "own.example.org", "notown.example", "xn--bcher-kva.example", "localhost.example", "127.example",
		"0x7f.example", "10.0.0.1.example", "a--b.example", "1.example", "metadata.example",
	} {
		resolver.set(host, "127.0.0.2")
	}
	resolver.set("two.example", "127.0.0.2", "127.0.0.4")
	resolver.set("mapped.example", "::ffff:127.0.0.2")
	resolver.set("same.example", "127.0.0.2", "127.0.0.2", "::ffff:127.0.0.2")
	_, port := serve(t, "127.0.0.2:0", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "honest") })
	d := newDialer(t, egress.Config{
		Allow: prefixes("127.0.0.2/32", "127.0.0.4/32"), Resolver: resolver, AllowPlaintext: true,
		OwnNames: []graspsync.HostPort{{Host: "own.example", Port: 443}, {Host: "relay.example", Port: 443}},
	})
	client := newClient(t, d)
	passed := 0
	for _, host := range []string{
		"relay.example", "RELAY.example", "relay.example.", "relay。example", "ｒｅｌａｙ.example", "evil-own.example", "own.example.org", "notown.example",
		"bücher.example", "BÜCHER.example", "xn--bcher-kva.example", "localhost.example", "127.example", "0x7f.example", "10.0.0.1.example",
		"a--b.example", "1.example", "metadata.example", "two.example", "mapped.example", "same.example", "127.0.0.2", "[::ffff:127.0.0.2]",
	} {
		u, err := graspsync.ParseURL("http://"+host+":"+port+"/", graspsync.HTTPSchemes)
		if !assert.NoError(t, err, host) {
			continue
		}
		body, err := get(t.Context(), client, u.String())
		if assert.NoError(t, err, host) && assert.Equal(t, "honest", body) {
			passed++
		}
	}
	assert.GreaterOrEqual(t, passed, 20)
	t.Logf("SSRF: %d honest controls passed", passed)
}
