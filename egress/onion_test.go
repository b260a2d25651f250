package egress_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
)

// asked is a resolver that notes the names it is asked for.
type asked []string

func (a *asked) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	*a = append(*a, host)
	return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
}

// DNS was asked for names of Tor, which tells others who is asked for (RFC 7686).
func TestCaseC13_NoLookupOfOnion(t *testing.T) {
	var names asked
	d, err := egress.NewDialer(egress.Config{Resolver: &names})
	require.NoError(t, err)
	for _, host := range []string{strings.Repeat("a", 56) + ".onion", "sub." + strings.Repeat("b", 56) + ".ONION", "x.onion.", "x.i2p", "x.alt"} {
		_, err := d.DialContext(t.Context(), "tcp", host+":443")
		require.ErrorIs(t, err, egress.ErrAddress, host)
	}
	require.Empty(t, names)
	_, err = d.DialContext(t.Context(), "tcp", "onion.example.com:443")
	require.Error(t, err)
	require.Equal(t, asked{"onion.example.com"}, names)
}
