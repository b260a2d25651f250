// Package egress makes all outgoing connections of graspsync. Its [Dialer] checks each address when
// it connects, so that a second DNS answer, a redirect or an odd spelling of an address cannot lead
// to an internal network. Relays, NIP-11 documents and git servers share one Dialer:
//
//	d, err := egress.NewDialer(egress.Config{
//		Own: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:7334")},
//	})
//	...
//	u, err := graspsync.ParseURL(clone, graspsync.HTTPSchemes)
//	...
//	if err := d.Check(u); err != nil { // cheap, before anything is queued
//		return err
//	}
//	client := d.HTTPClient(5 * time.Minute)
//	defer client.CloseIdleConnections()
//
// The following are never dialed: listeners and names of this server, the unspecified address, and
// ports below 1024 other than 80 and 443. Addresses that are not [Public] and other addresses of
// this host are dialed only if [Config.Allow] contains them. A name is refused if one of its
// addresses is.
//
// Proxies of the environment are ignored, because behind a proxy the Dialer would check only the
// address of the proxy. The package does not retry and starts no goroutines. An [http.Client] has
// goroutines of its idle connections.
//
// A [Budget] limits the connections of unproven hosts to one address. Callers report which hosts
// are proven, and keep the records of the Budget over restarts. Package health limits the attempts
// per host name.
//
// All types are safe for concurrent use.
package egress
