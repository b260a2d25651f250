package egress_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
)

// FuzzCheck requires that Check accepts no special address in any spelling, and that net/http reads
// the same host.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"https://127.0.0.1", "https://[::ffff:7f00:1]", "https://[64:ff9b::7f00:1]", "https://１２７.1", "https://8.8.8.8"} {
		f.Add(s)
	}
	d, err := egress.NewDialer(egress.Config{}.With(egress.Fixed{HostAddrs: func() ([]netip.Addr, error) { return nil, nil }}))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, s string) {
		u, err := graspsync.ParseURL(s, graspsync.HTTPSchemes)
		if err != nil || d.Check(u) != nil {
			return
		}
		require.False(t, u.Plaintext())
		if a, err := netip.ParseAddr(u.HostPort.Host); err == nil {
			require.True(t, naivePublic(a), "%s", a)
		}
		req, err := http.NewRequest(http.MethodGet, u.String(), nil)
		require.NoError(t, err)
		require.Equal(t, u.HostPort.Host, req.URL.Hostname())
	})
}

// FuzzPublic compares the prefix tables with the ranges written out in bytes.
func FuzzPublic(f *testing.F) {
	for _, row := range addressRows {
		b := netip.MustParseAddr(row.addr).As16()
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		require.Equal(t, naivePublic(a), egress.Public(a), "%s", a)
		if a.Is4() {
			mapped := netip.AddrFrom16(a.As16())
			require.Equal(t, egress.Public(a), egress.Public(mapped), "%s", mapped)
		}
	})
}

// FuzzRedirect requires that each Location is refused, not followed, or leads to a URL that passes
// ParseURL and Check.
func FuzzRedirect(f *testing.F) {
	for _, s := range []string{"/x", "//127.0.0.1:8080/", "http://other.test", "https://u:pw@h.test/", "https://h.test:22/", "\x7f", "?a#b", "https://[::1]/"} {
		f.Add(s)
	}
	d, err := egress.NewDialer(egress.Config{}.With(egress.Fixed{HostAddrs: func() ([]netip.Addr, error) { return nil, nil }}))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, location string) {
		next, err := egress.NextHop(d, "https://start.test/a", location)
		if err != nil {
			require.ErrorIs(t, err, egress.ErrRedirect)
			return
		}
		if next == nil {
			return
		}
		assert.Equal(t, "https", next.Scheme)
		u, err := graspsync.ParseURL(next.String(), graspsync.HTTPSchemes)
		require.NoError(t, err)
		require.NoError(t, d.Check(u))
	})
}
