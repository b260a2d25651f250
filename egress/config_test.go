package egress_test

import (
	"crypto/x509"
	"net/netip"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
)

func TestConfigZeroValueWorks(t *testing.T) {
	d, err := egress.NewDialer(egress.Config{})
	require.NoError(t, err)
	u, err := graspsync.ParseURL("https://relay.test", graspsync.HTTPSchemes)
	require.NoError(t, err)
	assert.NoError(t, d.Check(u))
}

func TestConfigNamesEveryBadField(t *testing.T) {
	_, err := egress.NewDialer(egress.Config{
		Allow:    []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), {}, netip.MustParsePrefix("::ffff:10.0.0.0/104")},
		Own:      []netip.AddrPort{{}, netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("127.0.0.1:1")},
		OwnNames: []graspsync.HostPort{{}, {Host: "x.org"}, {Host: "127.1", Port: 443}, {Host: "x.org", Port: 443}, {Host: "[::1]", Port: 443}},
	})
	require.Error(t, err)
	for _, name := range []string{
		"Allow[1]", "Allow[2]", "Own[0]", "Own[1]", "OwnNames[0]", "OwnNames[1]", "OwnNames[2]", "OwnNames[4]",
	} {
		assert.ErrorContains(t, err, name)
	}
	for _, name := range []string{"Allow[0]", "Own[2]", "OwnNames[3]"} {
		assert.NotContains(t, err.Error(), name)
	}
}

// TestConfigFieldsAllMatter fails for a field that nobody handles: each has a test
// of its own, named here.
func TestConfigFieldsAllMatter(t *testing.T) {
	tested := map[string]any{
		"Allow": TestAllowOpensOnlyItsPrefix, "Own": TestOwnListenersAreRefused, "OwnNames": TestTrapD2_OwnNamesAreComparedWhole,
		"AllowPlaintext": TestCheck, "Resolver": TestForbiddenDestinations,
		"HostAddrs": TestHostAddressesAreRefused, "RootCAs": TestRedirectTargets, "Budget": TestPromiseP14_OneBudgetPerAddress, "BudgetAllowed": TestBudgetAllowed, "Deny": TestDeny,
	}
	for _, f := range append(reflect.VisibleFields(reflect.TypeFor[egress.Config]()), reflect.VisibleFields(reflect.TypeFor[egress.Fixed]())...) {
		if f.Name != "fixed" {
			assert.Contains(t, tested, f.Name)
		}
	}
}

func TestConfigIsCopied(t *testing.T) {
	c := egress.Config{
		Allow: prefixes("10.0.0.0/8"), Own: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:8080")},
		RootCAs: x509.NewCertPool(),
	}
	d := newDialer(t, c)
	c.Allow[0], c.Own[0] = netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddrPort("10.0.0.2:8080")
	for host, want := range map[string]error{
		"10.0.0.1": egress.ErrOwn, "10.0.0.2": nil, "192.168.0.1": egress.ErrAddress,
	} {
		u, err := graspsync.ParseURL("https://"+host+":8080", graspsync.HTTPSchemes)
		require.NoError(t, err)
		assert.ErrorIs(t, d.Check(u), want, host)
	}
}
