package egress

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// globalUnicast6 contains all public IPv6 addresses (2000::/3).
var globalUnicast6 = netip.MustParsePrefix("2000::/3")

// specialPrefixes are the ranges within IPv4 or globalUnicast6 that are not for public servers: the IANA
// special-purpose registries and addresses of cloud providers.
var specialPrefixes = parsePrefixes(
	"0.0.0.0/8",         // this network; Linux connects 0.0.0.0 to localhost
	"10.0.0.0/8",        // private
	"100.64.0.0/10",     // carrier-grade NAT, and 100.100.100.200 (metadata)
	"127.0.0.0/8",       // loopback
	"168.63.129.16/32",  // host agent of a cloud, in a range that looks public
	"169.254.0.0/16",    // link-local, and 169.254.169.254 (metadata)
	"172.16.0.0/12",     // private
	"192.0.0.0/24",      // IETF protocols, and 192.0.0.192 (metadata)
	"192.0.2.0/24",      // documentation
	"192.31.196.0/24",   // AS112
	"192.52.193.0/24",   // AMT
	"192.88.99.0/24",    // 6to4 relays
	"192.168.0.0/16",    // private
	"192.175.48.0/24",   // AS112
	"198.18.0.0/15",     // benchmarks
	"198.51.100.0/24",   // documentation
	"203.0.113.0/24",    // documentation
	"224.0.0.0/4",       // multicast
	"240.0.0.0/4",       // reserved, and broadcast
	"2001::/23",         // IETF protocols: Teredo, ORCHID, benchmarks, anycast
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
)

func parsePrefixes(list ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(list))
	for i, s := range list {
		prefixes[i] = netip.MustParsePrefix(s)
	}
	return prefixes
}

// Public reports whether addr is global unicast and outside the special-purpose ranges. An
// IPv4-mapped address counts as its IPv4 address. Other IPv6 forms of an IPv4 address, addresses
// with a zone and the zero Addr are not public.
func Public(addr netip.Addr) bool {
	if !addr.IsValid() || addr.Zone() != "" {
		return false
	}
	addr = addr.Unmap()
	if addr.Is6() && (!globalUnicast6.Contains(addr) || isISATAP(addr)) {
		return false
	}
	return !anyContains(specialPrefixes, addr)
}

// Prefixes of IPv6 addresses that contain an IPv4 address at the given position, other than
// IPv4-mapped ones.
var (
	sixToFour         = netip.MustParsePrefix("2002::/16") // bytes 2 to 5
	teredo            = netip.MustParsePrefix("2001::/32") // last 4 bytes, inverted
	ipv4InLastBytes   = parsePrefixes("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
	notIPv4Compatible = parsePrefixes("::/128", "::1/128")
)

// embeddedIPv4 returns the IPv4 address that an unmapped addr contains. Within 64:ff9b:1::/48 (local
// NAT64) only the form with a prefix of 96 bits is recognized.
func embeddedIPv4(addr netip.Addr) (netip.Addr, bool) {
	if !addr.Is6() || anyContains(notIPv4Compatible, addr) {
		return netip.Addr{}, false
	}
	b := addr.As16()
	switch {
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(addr):
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	case anyContains(ipv4InLastBytes, addr), isISATAP(addr):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	}
	return netip.Addr{}, false
}

// isISATAP recognizes interface identifiers of RFC 5214.
func isISATAP(addr netip.Addr) bool {
	b := addr.As16()
	const universal = 0x02000000
	return binary.BigEndian.Uint32(b[8:12])&^universal == 0x00005efe
}

func anyContains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
