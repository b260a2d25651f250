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

// P18: own listeners are refused even if Allow contains all addresses.
func TestOwnListenersAreRefused(t *testing.T) {
	c := newCanary(t)
	other := newCanary(t)
	port := strconv.Itoa(int(c.port))
	everything := prefixes("0.0.0.0/0", "::/0")
	hostAddrs := func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("::ffff:198.51.100.8"), netip.MustParseAddr("fe80::7%eth0")}, nil
	}
	loopback := []string{"127.0.0.1", "127.0.0.9", "[::1]", "[::ffff:127.0.0.1]", "localhost", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[::127.0.0.1]"}
	for _, row := range []struct {
		own     string
		refused []string
	}{
		{"0.0.0.0:" + port, append([]string{"198.51.100.7", "198.51.100.8", "[64:ff9b::198.51.100.7]"}, loopback...)},
		{"[::]:" + port, append([]string{"198.51.100.7", "198.51.100.8", "[fe80::7]"}, loopback...)},
		{"127.0.0.1:" + port, []string{"127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "[64:ff9b::127.0.0.1]", "[2001:0:a00:1::80ff:fffe]"}},
		{"[::ffff:127.0.0.1]:" + port, []string{"127.0.0.1", "127.0.0.1.", "mixed.test"}},
		{"[::1]:" + port, []string{"[::1]", "[0::0:1]", "localhost"}},
		{"[fe80::1%lo]:" + port, []string{"[fe80::1]"}},
		{"198.51.100.9:" + port, []string{"198.51.100.9", "far.test", "[2002:c633:6409::1]"}},
	} {
		resolver := libc()
		resolver.set("far.test", "198.51.100.9")
		resolver.set("mixed.test", "127.0.0.2", "127.0.0.1")
		d := newDialer(t, egress.Config{
			Allow: everything, Own: []netip.AddrPort{netip.MustParseAddrPort(row.own)}, Resolver: resolver,
		}.With(egress.Fixed{HostAddrs: hostAddrs}))
		ctx, begun := attempted(t)
		for _, host := range row.refused {
			_, err := d.DialContext(ctx, "tcp", host+":"+port)
			assert.ErrorIs(t, err, egress.ErrOwn, "own %s, dialing %s", row.own, host)
			assert.ErrorIs(t, err, egress.ErrAddress)
		}
		assert.Zero(t, begun.Load())
		if own := netip.MustParseAddrPort(row.own).Addr().Unmap(); own.Is4() && !own.IsUnspecified() {
			mapped := netip.AddrPortFrom(netip.AddrFrom16(own.As16()), c.port)
			assert.ErrorIs(t, egress.CheckSocket(d, mapped.String()), egress.ErrOwn)
		}

		conn, err := d.DialContext(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(int(other.port)))
		require.NoError(t, err, "another server on this host, own %s", row.own)
		require.NoError(t, conn.Close())
	}
	c.silent(t)
}

// Another server took `evil-x.org` for its own name `x.org`, and did not recognize its own name with
// another path.
func TestTrapD2_OwnNamesAreComparedWhole(t *testing.T) {
	d := newDialer(t, egress.Config{
		AllowPlaintext: true,
		OwnNames:       []graspsync.HostPort{{Host: "X.org.", Port: 443}, {Host: "x.org", Port: 7334}, {Host: "2606:4700:0::1111", Port: 443}},
	})
	for _, s := range []string{
		"https://x.org", "https://X.ORG./npub1/x.git", "https://x.org:443/a?b", "https://x.org:7334", "http://x.org:7334/", "https://x。org",
		"https://[2606:4700::1111]/", "http://x.org:443",
	} {
		u, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
		require.NoError(t, err, s)
		assert.ErrorIs(t, d.Check(u), egress.ErrOwn, s)
		_, err = d.DialContext(t.Context(), "tcp", u.HostPort.String())
		assert.ErrorIs(t, err, egress.ErrOwn, s)
	}
	byHand := graspsync.URL{Scheme: "https", HostPort: graspsync.HostPort{Host: "X.ORG.", Port: 443}}
	assert.ErrorIs(t, d.Check(byHand), egress.ErrOwn)
	for _, s := range []string{
		"https://evil-x.org", "https://x.org.evil.test", "https://a.x.org", "https://x.or", "https://other.test/x.org", "https://other.test?x.org:443",
		"https://x.org:7335", "http://x.org", "https://xx.org", "https://[2606:4700::1112]",
	} {
		u, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
		require.NoError(t, err, s)
		assert.NoError(t, d.Check(u), s)
	}
}

// P1: the addresses of this host are refused at any port, public or not.
func TestHostAddressesAreRefused(t *testing.T) {
	d := newDialer(t, egress.Config{
		Resolver: &answers{names: map[string][]string{"us.test": {"8.8.8.8", "8.8.4.4"}}},
	}.With(egress.Fixed{
		HostAddrs: func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("8.8.4.4"), netip.MustParseAddr("2606:4700::7")}, nil
		},
	}))
	ctx, begun := attempted(t)
	for _, addr := range []string{"8.8.4.4:443", "8.8.4.4:9999", "[::ffff:8.8.4.4]:443", "[2606:4700::7]:443", "us.test:443"} {
		_, err := d.DialContext(ctx, "tcp", addr)
		assert.ErrorIs(t, err, egress.ErrAddress, addr)
		assert.ErrorContains(t, err, "address of this host", addr)
	}
	assert.Zero(t, begun.Load())
	u, err := graspsync.ParseURL("https://8.8.8.8", graspsync.HTTPSchemes)
	require.NoError(t, err)
	assert.NoError(t, d.Check(u))

	// The real ones of this machine.
	d = newDialer(t, egress.Config{})
	list, err := net.InterfaceAddrs()
	require.NoError(t, err)
	require.NotEmpty(t, list)
	for _, a := range list {
		ip := a.(*net.IPNet).IP.String()
		_, err := d.DialContext(ctx, "tcp", net.JoinHostPort(ip, "8080"))
		assert.ErrorIs(t, err, egress.ErrAddress, ip)
	}
	assert.Zero(t, begun.Load())
}

func TestAllowOpensOnlyItsPrefix(t *testing.T) {
	check := func(d *egress.Dialer, host string) error {
		u, err := graspsync.ParseURL("https://"+host+":8080", graspsync.HTTPSchemes)
		require.NoError(t, err, host)
		return d.Check(u)
	}
	for _, row := range []struct {
		allow  string
		opened []string
		closed []string
	}{
		{"10.1.0.0/16", []string{"10.1.0.1", "10.1.255.255", "[::ffff:10.1.2.3]"}, []string{"10.0.255.255", "10.2.0.0", "127.0.0.1", "[64:ff9b::10.1.0.1]", "[2002:a01:1::]"}},
		{"10.1.2.3/8", []string{"10.0.0.1", "10.255.0.1"}, []string{"192.168.0.1"}},
		{"fd00::/8", []string{"[fd00::1]"}, []string{"[fc00::1]", "[fe80::1]", "10.0.0.1"}},
		{"64:ff9b::/96", []string{"[64:ff9b::8.8.8.8]"}, []string{"[64:ff9b::127.0.0.1]", "[64:ff9b::10.0.0.1]", "[64:ff9b::169.254.169.254]", "[64:ff9b::]", "[64:ff9b:1::8.8.8.8]"}},
		{"64:ff9b:1::/48", []string{"[64:ff9b:1::8.8.8.8]"}, []string{"[64:ff9b:1::127.0.0.1]", "[64:ff9b:1:ffff::10.0.0.1]"}},
		{"2002::/16", []string{"[2002:808:808::1]"}, []string{"[2002:7f00:1::1]", "[2002:a00:1::1]"}},
		{"2001::/32", []string{"[2001:0:a00:1::f7f7:f7f7]"}, []string{"[2001:0:808:808::80ff:fffe]"}},
		{"::/0", []string{"[fd00::1]", "[::1]", "[::8.8.8.8]"}, []string{"[::]", "127.0.0.1", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[::ffff:0:10.0.0.1]", "[2a00:1450::5efe:10.0.0.1]"}},
		{"0.0.0.0/0", []string{"127.0.0.1", "169.254.169.254", "8.8.8.8"}, []string{"0.0.0.0", "[::1]", "[64:ff9b::8.8.8.8]"}},
	} {
		d := newDialer(t, egress.Config{Allow: prefixes(row.allow)}.With(egress.Fixed{HostAddrs: func() ([]netip.Addr, error) { return nil, nil }}))
		for _, host := range row.opened {
			assert.NoError(t, check(d, host), "allow %s, %s", row.allow, host)
		}
		for _, host := range row.closed {
			assert.ErrorIs(t, check(d, host), egress.ErrAddress, "allow %s, %s", row.allow, host)
		}
	}
}

func TestUnknownHostAddressesStopEverything(t *testing.T) {
	broken := errors.New("netlink is gone")
	resolver := &answers{names: map[string][]string{"relay.test": {"127.0.0.2"}}}
	d := newDialer(t, egress.Config{
		Allow: prefixes("127.0.0.0/8"), Resolver: resolver,
	}.With(egress.Fixed{HostAddrs: func() ([]netip.Addr, error) { return nil, broken }}))
	ctx, begun := attempted(t)
	for _, addr := range []string{"127.0.0.2:8080", "relay.test:8080"} {
		_, err := d.DialContext(ctx, "tcp", addr)
		assert.ErrorIs(t, err, broken)
		assert.NotErrorIs(t, err, egress.ErrAddress, "this may pass")
	}
	assert.ErrorIs(t, egress.CheckSocket(d, "127.0.0.2:8080"), broken)
	assert.Zero(t, begun.Load())
}
