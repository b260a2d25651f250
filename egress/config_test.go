package egress_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
)

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
