package hunt

import (
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"

	"github.com/graspsync/graspsync"
)

// site is what servers have in common that cost whoever has them nothing more than one does: the name that somebody
// registered, or a network. What anybody can have below somebody else's name, such as that of a service for
// dynamic addresses, is that one's.
func site(a graspsync.HostPort) string {
	if ip, err := netip.ParseAddr(a.Host); err == nil {
		bits := 24
		if ip = ip.Unmap(); ip.Is6() {
			bits = 48
		}
		net, _ := ip.WithZone("").Prefix(bits) // no address has fewer
		return net.String()
	}
	for name := a.Host; ; {
		label, rest, more := strings.Cut(name, ".")
		if !more {
			return a.Host
		}
		if suffix, registry := publicsuffix.PublicSuffix(rest); suffix == rest && (registry || !strings.Contains(rest, ".")) {
			return label + "." + rest
		}
		name = rest
	}
}
