package hunt

import (
	"net/netip"

	"golang.org/x/net/publicsuffix"

	"github.com/graspsync/graspsync"
)

// site is what servers have in common that cost whoever has them nothing more than one does: the name that somebody
// registered, or a network.
func site(a graspsync.HostPort) string {
	if ip, err := netip.ParseAddr(a.Host); err == nil {
		bits := 24
		if ip = ip.Unmap(); ip.Is6() {
			bits = 48
		}
		net, _ := ip.WithZone("").Prefix(bits) // no address has fewer
		return net.String()
	}
	if name, err := publicsuffix.EffectiveTLDPlusOne(a.Host); err == nil {
		return name
	}
	return a.Host
}
