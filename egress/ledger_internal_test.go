package egress

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of a host the addresses are kept where it was connected last, each once.
func TestProofsOfAHost(t *testing.T) {
	var p provenHost
	var want []netip.Prefix
	for i := range 40 {
		at := netip.PrefixFrom(netip.AddrFrom4([4]byte{9, 9, 9, byte(i)}), 32)
		p.add(at)
		p.add(at)
		want = append(want, at)
		require.Equal(t, want[max(0, len(want)-16):], p.at)
	}
}
