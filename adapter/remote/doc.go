// Package remoteadapter makes a [relaysync.Store] of a relay in another process. It publishes
// synced events to the relay, and reads its events with REQ.
//
//	store, err := remoteadapter.New(url, transport, remoteadapter.Config{Identity: identity})
//	defer store.Close()
//	manager, err := relaysync.New(store, others, identity, relaysync.Config{
//		OwnRelay: url, OwnTransport: transport,
//	})
//
// The transport must be allowed to reach the relay; the dialer for strangers refuses internal
// addresses.
//
// # Requirements
//
// The relay keeps the newest version of replaceable events, executes deletions and requests to
// vanish that name Identity, and serves all its events without AUTH. It must have no rate limit for
// published events. Refusals by its policy are final.
//
// # Limits
//
//   - An event counts as stored if the relay answers OK.
//   - The outcome of a refused event is read from the text of the OK, such as "deleted:". Unknown
//     texts are final refusals, except "error:", "rate-limited:" and "auth-required:".
//   - If one second has more events than the relay returns, reading ends in [ErrIncomplete].
//   - If the relay disconnects because of one event, the others are published one by one.
//   - Only authors can delete events.
//   - Has and Keys transfer whole events.
package remoteadapter
