package egress_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
)

var addressRows = []struct {
	addr   string
	public bool
}{
	{"8.8.8.8", true}, {"1.1.1.1", true}, {"93.184.216.34", true}, {"223.255.255.255", true}, {"100.63.255.255", true},
	{"100.128.0.0", true}, {"172.15.255.255", true}, {"172.32.0.0", true}, {"168.63.129.15", true}, {"168.63.129.17", true},
	{"11.0.0.0", true}, {"9.255.255.255", true}, {"126.255.255.255", true}, {"128.0.0.0", true}, {"169.253.255.255", true},
	{"192.0.1.0", true}, {"192.167.255.255", true}, {"198.17.255.255", true}, {"198.20.0.0", true}, {"203.0.112.255", true},
	{"2606:4700::1111", true}, {"2a00:1450:4001::200e", true}, {"2001:200::1", true}, {"2001:4860:4860::8888", true}, {"2003::1", true},
	{"::ffff:8.8.8.8", true}, {"3ffe::1", true}, {"2001:db7::1", true}, {"2001:db9::1", true},

	{"0.0.0.0", false}, {"0.1.2.3", false}, {"10.0.0.1", false}, {"10.255.255.255", false}, {"100.64.0.1", false},
	{"100.100.100.200", false}, {"100.127.255.255", false}, {"127.0.0.1", false}, {"127.255.255.255", false}, {"168.63.129.16", false},
	{"169.254.0.1", false}, {"169.254.169.254", false}, {"172.16.0.1", false}, {"172.31.255.255", false}, {"192.0.0.1", false},
	{"192.0.0.192", false}, {"192.0.2.1", false}, {"192.31.196.1", false}, {"192.52.193.1", false}, {"192.88.99.1", false},
	{"192.168.0.1", false}, {"192.175.48.1", false}, {"198.18.0.1", false}, {"198.19.255.255", false}, {"198.51.100.1", false},
	{"203.0.113.1", false}, {"224.0.0.1", false}, {"239.255.255.255", false}, {"240.0.0.1", false}, {"255.255.255.255", false},
	{"::", false}, {"::1", false}, {"::7f00:1", false}, {"::8.8.8.8", false}, {"::ffff:127.0.0.1", false}, {"::ffff:10.0.0.1", false},
	{"::ffff:0:8.8.8.8", false}, {"::ffff:0:127.0.0.1", false}, {"64:ff9b::8.8.8.8", false}, {"64:ff9b::127.0.0.1", false},
	{"64:ff9b:1::10.0.0.1", false}, {"100::1", false}, {"100:0:0:1::1", false}, {"2001::1", false}, {"2001:0:7f00:1::", false},
	{"2001:2::1", false}, {"2001:10::1", false}, {"2001:20::1", false}, {"2001:1ff::1", false}, {"2001:db8::1", false},
	{"2002:7f00:1::", false}, {"2002:808:808::1", false}, {"2620:4f:8000::1", false}, {"3fff::1", false}, {"3fff:fff::1", false},
	{"4000::1", false}, {"5f00::1", false}, {"fc00::1", false}, {"fd00:ec2::254", false}, {"fe80::1", false}, {"fec0::1", false},
	{"ff02::1", false}, {"2a00:1450::5efe:10.0.0.1", false}, {"2a00:1450::200:5efe:8.8.8.8", false}, {"1fff::1", false},
}

func TestPublic(t *testing.T) {
	for _, row := range addressRows {
		a := netip.MustParseAddr(row.addr)
		assert.Equal(t, row.public, egress.Public(a), row.addr)
		assert.Equal(t, row.public, naivePublic(a), "the twin, %s", row.addr)
	}
	assert.False(t, egress.Public(netip.Addr{}), "no address")
	assert.False(t, egress.Public(netip.MustParseAddr("2606:4700::1111%eth0")), "with a zone")
}

func TestPublicAgreesWithItsTwin(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	for range 50_000 {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], r.Uint64())
		binary.BigEndian.PutUint64(b[8:], r.Uint64())
		// Most random addresses are dull: start from a row of the table, and from
		// both ends of what surrounds it.
		near := netip.MustParseAddr(addressRows[r.IntN(len(addressRows))].addr).As16()
		copy(b[:], near[:r.IntN(17)])
		for _, a := range []netip.Addr{netip.AddrFrom16(b), netip.AddrFrom4([4]byte(b[12:]))} {
			require.Equal(t, naivePublic(a), egress.Public(a), "%s, seed %d", a, seed)
		}
	}
}

// naivePublic is Public with byte comparisons.
func naivePublic(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	b := a.As16()
	be := binary.BigEndian
	if a.Is4() || a.Is4In6() {
		return naivePublic4(be.Uint32(b[12:]))
	}
	hi, mid := be.Uint32(b[:]), be.Uint32(b[8:])
	switch {
	case b[0]&0xe0 != 0x20, // 2000::/3
		hi>>9 == 0x20010000>>9,   // 2001::/23
		hi == 0x20010db8,         // 2001:db8::/32
		hi>>16 == 0x2002,         // 2002::/16
		hi>>12 == 0x3fff0000>>12, // 3fff::/20
		hi == 0x2620004f && b[4] == 0x80 && b[5] == 0,
		mid == 0x00005efe, mid == 0x02005efe:
		return false
	}
	return true
}

func naivePublic4(n uint32) bool {
	for _, r := range [][2]uint32{
		{0x00000000, 0x00ffffff}, {0x0a000000, 0x0affffff}, {0x64400000, 0x647fffff}, {0x7f000000, 0x7fffffff},
		{0xa83f8110, 0xa83f8110}, {0xa9fe0000, 0xa9feffff}, {0xac100000, 0xac1fffff}, {0xc0000000, 0xc00000ff},
		{0xc0000200, 0xc00002ff}, {0xc01fc400, 0xc01fc4ff}, {0xc034c100, 0xc034c1ff}, {0xc0586300, 0xc05863ff},
		{0xc0a80000, 0xc0a8ffff}, {0xc0af3000, 0xc0af30ff}, {0xc6120000, 0xc613ffff}, {0xc6336400, 0xc63364ff},
		{0xcb007100, 0xcb0071ff}, {0xe0000000, 0xffffffff},
	} {
		if r[0] <= n && n <= r[1] {
			return false
		}
	}
	return true
}
