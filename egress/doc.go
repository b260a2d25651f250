// Package egress is the only way from graspsync to the network: the rules for
// URLs that strangers wrote, and a dialer that judges the address it is about to
// connect to.
//
// [graspsync.ParseURL] reads a URL once and gives one [graspsync.URL] for all its spellings.
// [Dialer] refuses addresses that are not public, at the moment of dialing, so
// that neither a second DNS answer nor a redirect nor an odd spelling of an
// address gets past it. Relays, NIP-11 documents and git servers share one
// Dialer:
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
// What is never dialed, whatever a Config says: our own listeners, our own names,
// the unspecified address, and ports below 1024 other than 80 and 443. What is not
// dialed unless [Config.Allow] opens it: everything that [Public] says no to, and
// this host's other addresses. A name is refused as a whole if one of its
// addresses is.
//
// Proxies of the environment are ignored: behind a proxy the guard would judge
// the proxy's address and nothing else. Nothing here retries or starts goroutines of
// its own; an [http.Client] has those of its idle connections.
//
// A [Budget] bounds what hosts that nobody has proven bring one address, whatever
// strangers sign. Callers say which hosts proved to be what they were dialed for, and
// keep the Budget over restarts. That a host name is not dialed too often under many
// URLs is the business of package health.
//
// All types are safe for concurrent use.
package egress
