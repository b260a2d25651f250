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

// BehindProxy returns a function for [Config.Client]. It reads the client from a header, such as
// X-Forwarded-For, to which trusted proxies append addresses: the last address that is not a trusted
// proxy, or the first if all are. It is "" if an entry is not an address, and the sender if that is
// no trusted proxy. Trusted are the given networks, by default all loopback, private and link-local
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

func private(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast()
}

// clientNamed returns the stranger for a name that [Config.Client] returned.
func clientNamed(name string) limit.Stranger {
	if prefix, err := netip.ParsePrefix(name); err == nil {
		return limit.Client(prefix.Addr())
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return limit.Client(addr)
	}
	return limit.Stranger{ID: name}
}

// remote returns the address of a request, or "" if it is not public and may be a proxy with many
// clients.
func remote(r *http.Request) string {
	addr, ok := hop(r.RemoteAddr)
	if !ok || private(addr) {
		return ""
	}
	return addr.String()
}
