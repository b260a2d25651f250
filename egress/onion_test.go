package egress_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
)

// lookupRecorder is a resolver that records the requested names.
type lookupRecorder []string

func (a *lookupRecorder) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	*a = append(*a, host)
	return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
}

// Names of Tor were looked up in DNS, which reveals them to others (RFC 7686).
func TestCaseC13_NoLookupOfOnion(t *testing.T) {
	var names lookupRecorder
	d, err := egress.NewDialer(egress.Config{Resolver: &names})
	require.NoError(t, err)
	for _, host := range []string{strings.Repeat("a", 56) + ".onion", "sub." + strings.Repeat("b", 56) + ".ONION", "x.onion.", "x.i2p", "x.alt"} {
		_, err := d.DialContext(t.Context(), "tcp", host+":443")
		require.ErrorIs(t, err, egress.ErrAddress, host)
	}
	require.Empty(t, names)
	_, err = d.DialContext(t.Context(), "tcp", "onion.example.com:443")
	require.Error(t, err)
	require.Equal(t, lookupRecorder{"onion.example.com"}, names)
}
