package graspsync

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// HostPort is the host and port of a server. Host is lower-case ASCII without a trailing dot, and
// an IPv6 address has no brackets. Comparable.
type HostPort struct {
	Host string
	Port uint16
}

func (h HostPort) String() string {
	return bracket(h.Host) + ":" + strconv.Itoa(int(h.Port))
}

func bracket(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// Resolvable reports whether public DNS may know the host. Hosts below onion (RFC 7686), alt (RFC
// 9476) and i2p are not looked up.
func (h HostPort) Resolvable() bool {
	return !slices.Contains([]string{"onion", "alt", "i2p"}, h.Host[strings.LastIndexByte(h.Host, '.')+1:])
}

// Canonical returns h with the host in the canonical spelling of [ParseURL]. The error wraps [ErrURL].
func (h HostPort) Canonical() (HostPort, error) {
	host, err := canonicalHost(h.Host, strings.Contains(h.Host, ":"))
	return HostPort{Host: host, Port: h.Port}, err
}

// ParseHostPort reads "host:port" with the rules of [ParseURL]. The error wraps [ErrURL].
func ParseHostPort(s string) (HostPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return HostPort{}, fmt.Errorf("%w: no host and port", ErrURL)
	}
	n, err := parsePort(port)
	if err != nil {
		return HostPort{}, err
	}
	return HostPort{Host: host, Port: n}.Canonical()
}

func parsePort(s string) (uint16, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		// The text is not quoted, because it may be part of a password that contains "/" or "#".
		return 0, fmt.Errorf("%w: port is not a number", ErrURL)
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%w: port %s", ErrURL, Clip(s, maxQuoted))
	}
	if !DialablePort(uint16(n)) {
		return 0, fmt.Errorf("%w: port %d is never dialed: below 1024 only 80 and 443 are", ErrURL, n)
	}
	return uint16(n), nil
}

// DialablePort reports whether a URL of an event may name the port. Ports below 1024 other than 80
// and 443 belong to other services, such as mail.
func DialablePort(p uint16) bool { return p >= 1024 || p == 80 || p == 443 }

func canonicalHost(h string, bracketed bool) (string, error) {
	if bracketed {
		a, err := netip.ParseAddr(h)
		if err != nil || !a.Is6() || a.Zone() != "" {
			return "", fmt.Errorf("%w: address %q", ErrURL, Clip(h, maxQuoted))
		}
		return a.Unmap().String(), nil
	}
	ascii, err := idna.Lookup.ToASCII(h)
	if err != nil || !utf8.ValidString(h) { // ToASCII replaces invalid UTF-8 by U+FFFD
		return "", fmt.Errorf("%w: host %q", ErrURL, Clip(h, maxQuoted))
	}
	ascii = strings.TrimSuffix(strings.ToLower(ascii), ".")
	if !isDNSName(ascii) {
		return "", fmt.Errorf("%w: host %q", ErrURL, Clip(h, maxQuoted))
	}
	if isNumeric(ascii[strings.LastIndexByte(ascii, '.')+1:]) {
		// Some resolvers read a name that ends in a number as an IPv4 address in historic
		// spellings.
		if _, err := netip.ParseAddr(ascii); err != nil {
			return "", fmt.Errorf("%w: host %q", ErrURL, Clip(h, maxQuoted))
		}
	}
	return ascii, nil
}

// isDNSName checks the sizes and bytes of a DNS name, which the IDNA lookup profile does not.
func isDNSName(host string) bool {
	if len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

func isNumeric(label string) bool {
	if rest, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(rest, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
