// Package egress makes all outgoing connections of graspsync. Its [Dialer] checks each address when
// it connects, so that no DNS answer, redirect or spelling of an address leads to an internal network:
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
// Never dialed are listeners and names of this server, the unspecified address, and ports below 1024
// other than 80 and 443. Addresses that are not [Public] and other addresses of this host are dialed
// only if [Config.Allow] contains them. Proxies of the environment are ignored, because the Dialer
// would check only their addresses. The package does not retry.
//
// A [Budget] limits the connections of unproven hosts to one address, package health those to one
// host name. Callers report which hosts are proven, and keep the records of the Budget over restarts.
package egress
