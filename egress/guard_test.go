package egress_test

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
)

// forbiddenHosts are ways to write addresses that are not public, with a host of
// this machine's loopback first.
var forbiddenHosts = []string{
	"127.0.0.1", "127.0.0.3", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0x7f.0x0.0x0.0x1", "0177.0.0.1", "017700000001",
	"127.0.0.01", "127.0.0.0x1", "0", "0.0.0.0", "localhost", "LOCALHOST", "localhost.", "１２７.0.0.1", "127。0。0。1", "①②⑦.0.0.1", "127.0.0.1.",
	"[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]",
	"[64:ff9b::127.0.0.1]", "[64:ff9b:1::127.0.0.1]", "[2002:7f00:1::]", "[2001:0:a00:1::80ff:fffe]", "[::1%25lo]", "[fe80::1%25eth0]", "[fe80::1]",
	"10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16",
	"192.0.0.192", "100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "[ff02::1]", "[fc00::1]", "[3fff::1]", "[5f00::1]", "[2001:db8::1]",
	"[2a00:1450::5efe:10.0.0.1]",
}

// forbiddenAnswers are what a hostile DNS server may say; in the first rows
// 127.0.0.2 may be dialed.
var forbiddenAnswers = [][]string{
	{"127.0.0.2", "127.0.0.1"}, {"127.0.0.1", "127.0.0.2"}, {"127.0.0.2", "::1"}, {"::1", "127.0.0.2"}, {"127.0.0.2", "0.0.0.0"},
	{"127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.1"}, {"127.0.0.2", "::"}, {"127.0.0.2", "fe80::1%lo"},
	{"127.0.0.2", "64:ff9b::127.0.0.1"}, {"127.0.0.1"}, {"::1"}, {"::ffff:127.0.0.1"}, {"10.0.0.1"}, {"169.254.169.254"}, {"fd00::1"},
	{"8.8.8.8", "127.0.0.1"}, {"2606:4700::1111", "::1"}, {"2606:4700::1111", "10.0.0.1"}, {"8.8.8.8", "fd00:ec2::254"},
	{"100.64.0.1"}, {"192.168.0.1"}, {"168.63.129.16"}, {"2002:7f00:1::1"}, {"::"}, {"0.0.0.0"}, {"::127.0.0.1"},
}

func TestForbiddenDestinations(t *testing.T) {
	resolver := libc()
	hosts := append([]string(nil), forbiddenHosts...)
	for i, list := range forbiddenAnswers {
		name := "name" + strconv.Itoa(i) + ".test"
		resolver.set(name, list...)
		hosts = append(hosts, name)
	}
	require.GreaterOrEqual(t, len(hosts), 60)

	c := newCanary(t)
	port := strconv.Itoa(int(c.port))
	var target atomic.Value
	_, start := serve(t, "127.0.0.2:0", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", target.Load().(string))
		w.WriteHeader(http.StatusFound)
	})
	d := newDialer(t, egress.Config{Allow: prefixes("127.0.0.2/32"), Resolver: resolver, AllowPlaintext: true})
	client := newClient(t, d)

	for _, host := range hosts {
		ctx, begun := attempted(t)
		conn, err := d.DialContext(ctx, "tcp", at(host+":PORT", port))
		assert.ErrorIs(t, err, egress.ErrAddress, host)
		assert.Nil(t, conn, host)

		for _, scheme := range []string{"http", "https"} {
			_, err = get(ctx, client, scheme+"://"+at(host+":PORT/", port))
			assert.Error(t, err, host)
			assert.True(t, isRefusal(err), "%s: %v", host, err)
		}
		assert.Zero(t, begun.Load(), "%s: a connection was begun", host)

		target.Store("http://" + at(host+":PORT/", port))
		_, err = get(ctx, client, "http://127.0.0.2:"+start)
		assert.True(t, isRefusal(err), "redirect to %s: %v", host, err)
		assert.LessOrEqual(t, begun.Load(), int64(1), "%s: a connection was begun after the redirect", host)
	}
	c.silent(t)
	for _, q := range resolver.asked {
		assert.NotRegexp(t, `[ .](0x[0-9a-f]*|[0-9]+)$`, q, "a resolver was asked about a number")
	}
}

// TestTrapG3_RebindingName: elsewhere a name was checked with one DNS answer and
// dialed with the next.
func TestTrapG3_RebindingName(t *testing.T) {
	c := newCanary(t)
	good, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), c.port).String())
	require.NoError(t, err)
	defer func() { _ = good.Close() }()

	resolver := &answers{names: map[string][]string{"rebind.test": {"127.0.0.2"}}}
	d := newDialer(t, egress.Config{Allow: prefixes("127.0.0.2/32"), Resolver: resolver})
	addr := "rebind.test:" + strconv.Itoa(int(c.port))

	conn, err := d.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	assert.Equal(t, good.Addr().String(), conn.RemoteAddr().String())
	require.NoError(t, conn.Close())
	assert.Equal(t, []string{"ip rebind.test"}, resolver.asked, "one question per dial, for both families")

	resolver.set("rebind.test", "127.0.0.1")
	_, err = d.DialContext(t.Context(), "tcp", addr)
	assert.ErrorIs(t, err, egress.ErrAddress)
	c.silent(t)
}

// TestSocketIsJudged: were all earlier judgements gone, the socket would still not
// connect.
func TestSocketIsJudged(t *testing.T) {
	c := newCanary(t)
	d := newDialer(t, egress.Config{})
	for _, a := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"} {
		conn, err := egress.Connect(t.Context(), d, netip.AddrPortFrom(netip.MustParseAddr(a), c.port))
		assert.ErrorIs(t, err, egress.ErrAddress, a)
		assert.Nil(t, conn, a)
	}
	c.silent(t)

	assert.NoError(t, egress.JudgeSocket(d, "8.8.8.8:443"))
	assert.NoError(t, egress.JudgeSocket(d, "[2606:4700::1111]:8080"))
	for _, s := range []string{"", "8.8.8.8", "/run/socket", "8.8.8.8:22", "8.8.8.8:0", "10.0.0.1:443", "[fe80::1%eth0]:443", "name:443"} {
		assert.ErrorIs(t, egress.JudgeSocket(d, s), egress.ErrAddress, "%q", s)
	}
}

// TestTrapG3_SchemesAndPorts: elsewhere clone URLs were used as given, `file:`,
// `ssh:` and `ext:` among them, and any port.
func TestTrapG3_SchemesAndPorts(t *testing.T) {
	for _, s := range []string{
		"file:///etc/passwd", "/etc/passwd", "./x", "../x", "ssh://git@host/x", "git@host:x", "git://host/x", "ext::sh -c id", "ext::https://host",
		"ftp://host/x", "https://host:22/x", "https://host:25/", "https://host:6379999/", "fd::17", "--upload-pack=x", "https://u:p@host/x",
	} {
		u, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
		if err == nil { // a bare path or option is read as a host name, and no more than that
			assert.Equal(t, "https", u.Scheme, s)
			assert.NotContains(t, u.HostPort.Host, "/", s)
			assert.False(t, u.HostPort.Host == "" || u.HostPort.Host[0] == '-', s)
		}
	}
	d := newDialer(t, egress.Config{Allow: prefixes("0.0.0.0/0", "::/0")})
	ctx, begun := attempted(t)
	for _, addr := range []string{
		"127.0.0.1:22", "127.0.0.1:0", "127.0.0.1:https", "127.0.0.1:65536", "127.0.0.1:", "127.0.0.1", "", ":443", "0.0.0.0:8080", "[::]:8080",
		"a b:443", "user@host:443", "[::1:443", "[fe80::1%lo]:443",
	} {
		_, err := d.DialContext(ctx, "tcp", addr)
		assert.ErrorIs(t, err, egress.ErrAddress, "%q", addr)
	}
	for _, network := range []string{"udp", "unix", "ip", "tcp5", ""} {
		_, err := d.DialContext(ctx, network, "127.0.0.1:8080")
		assert.ErrorIs(t, err, egress.ErrAddress, network)
	}
	assert.Zero(t, begun.Load())
}

func isRefusal(err error) bool {
	return errors.Is(err, egress.ErrAddress) || errors.Is(err, graspsync.ErrURL)
}
