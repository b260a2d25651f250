package egress_test

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
)

// Another server checked a name with one DNS answer, and dialed it with the next.
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

// The check of the socket refuses an address even without the earlier checks.
func TestSocketIsJudged(t *testing.T) {
	c := newCanary(t)
	d := newDialer(t, egress.Config{})
	for _, a := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"} {
		conn, err := egress.Connect(t.Context(), d, netip.AddrPortFrom(netip.MustParseAddr(a), c.port))
		assert.ErrorIs(t, err, egress.ErrAddress, a)
		assert.Nil(t, conn, a)
	}
	c.silent(t)

	assert.NoError(t, egress.CheckSocket(d, "8.8.8.8:443"))
	assert.NoError(t, egress.CheckSocket(d, "[2606:4700::1111]:8080"))
	for _, s := range []string{"", "8.8.8.8", "/run/socket", "8.8.8.8:22", "8.8.8.8:0", "10.0.0.1:443", "[fe80::1%eth0]:443", "name:443"} {
		assert.ErrorIs(t, egress.CheckSocket(d, s), egress.ErrAddress, "%q", s)
	}
}

// Another server used clone URLs as given, including `file:`, `ssh:`, `ext:` and any port.
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
