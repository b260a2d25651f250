package gitserve

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/limit"
)

// DefaultClientHeader is where most proxies note whom a request comes from.
const DefaultClientHeader = "X-Forwarded-For"

// BehindProxy returns a function for [Config.Client]: the client is who asked the first of the
// proxies in these networks, by what that one has noted in a header, to which the others
// have added; of "Forwarded" (RFC 7239) its "for" counts. The header must be one that the
// proxies write or add to, not one that they pass on as it came.
//
// What anybody else says in it is not believed: who asks without one of these proxies
// counts as the address he comes from. If a proxy says nothing that is an address, nobody
// knows who asks. With no networks these are all that are not public.
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

// hop reads an address, with a port or without one.
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

// forwardedFor is whom one element of a Forwarded header is for.
func forwardedFor(element string) string {
	for pair := range strings.SplitSeq(element, ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(pair), "="); ok && strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// private reports whether an address is one that other networks have as well.
func private(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast()
}

// clientNamed returns the stranger that [Config.Client] names: the client behind an address or a network,
// or a stranger without a group if the name is neither.
func clientNamed(name string) limit.Stranger {
	if prefix, err := netip.ParsePrefix(name); err == nil {
		return limit.Client(prefix.Addr())
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return limit.Client(addr)
	}
	return limit.Stranger{ID: name}
}

// remote returns the public address that a request comes from. It returns "" for other addresses, because
// a proxy has one of these, and many clients are behind it.
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
