// Package remoteadapter makes a [relaysync.Store] of a relay in another process, by EVENT and REQ.
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
// The relay keeps the newest version of replaceable events, executes deletions and requests to vanish that
// name Identity, and serves all its events without AUTH and rate limits.
//
// # Limits
//
//   - An event counts as stored if the relay answers OK.
//   - The outcome of a refused event is read from the text of the OK, such as "deleted:". Other texts
//     than "error:", "rate-limited:" and "auth-required:" are final.
//   - If one second has more events than the relay returns, reading ends in [ErrIncomplete].
//   - Only authors can delete events.
//   - Has and Keys transfer whole events. One request runs at a time.
package remoteadapter
