package gitserve

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/limit"
)

// DefaultClientHeader is the header in which most proxies record the client's address.
const DefaultClientHeader = "X-Forwarded-For"

// BehindProxy returns a function for [Config.Client]. It reads the client's address from a header
// to which trusted proxies append. The client is the last address in the header that is not a
// trusted proxy, or the first address if all are trusted. In "Forwarded" (RFC 7239), the "for"
// parameter counts. The proxies must write or append to the header, and not pass it on unchanged.
//
// The header of a request that does not come from a trusted proxy is ignored, and the client is the
// sender's address. If an entry is not an address, the client is unknown and the function returns
// "". Trusted proxies are the given networks, by default all loopback, private and link-local
// addresses.
func BehindProxy(header string, networks ...netip.Prefix) func(*http.Request) string {
	trusted := func(addr netip.Addr) bool {
		return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Masked().Contains(addr) })
	}
	if len(networks) == 0 {
		trusted = private
	}
	return func(r *http.Request) string {
		at, ok := hop(r.RemoteAddr)
		if !ok || !trusted(at) {
			return nameOf(at)
		}
		hops := strings.Split(strings.Join(r.Header.Values(header), ","), ",")
		for i, said := range slices.Backward(hops) {
			if strings.EqualFold(header, "Forwarded") {
				said = forwardedFor(said)
			}
			if at, ok = hop(strings.TrimSpace(said)); !ok {
				return ""
			}
			if !trusted(at) || i == 0 {
				return nameOf(at)
			}
		}
		return ""
	}
}

func hop(said string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(said); err == nil {
		said = host
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(said, "["), "]"))
	return addr.Unmap().WithZone(""), err == nil
}

func nameOf(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}

func forwardedFor(element string) string {
	for pair := range strings.SplitSeq(element, ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

func private(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast()
}

// clientNamed returns the stranger for a name returned by [Config.Client]. A name that is no
// address and no network belongs to no group.
func clientNamed(name string) limit.Stranger {
	if prefix, err := netip.ParsePrefix(name); err == nil {
		return limit.Client(prefix.Addr())
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return limit.Client(addr)
	}
	return limit.Stranger{ID: name}
}

// remote returns the address of a request if it is public. It returns "" for other addresses,
// because they belong to proxies with many clients.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || private(addr.Unmap()) {
		return ""
	}
	return addr.Unmap().String()
}
