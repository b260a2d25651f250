// Package remoteadapter makes a [relaysync.Store] of a relay in another process, over websocket
// only. It publishes synced events to the relay, and reads its events page by page with REQ.
//
//	store, err := remoteadapter.New(url, transport, remoteadapter.Config{Identity: identity})
//	defer store.Close()
//	manager, err := relaysync.New(store, others, identity, relaysync.Config{
//		OwnRelay: url, OwnTransport: transport,
//	})
//
// The transport must be allowed to reach the relay. An internal address needs a separate dialer,
// because the dialer for URLs of strangers refuses such addresses.
//
// # Requirements
//
// The relay keeps the newest version of replaceable events, executes deletions and requests to
// vanish that name Identity, and serves all its events without AUTH. It must accept published
// events without a rate limit. Its policy should not be narrower than the policy of the manager,
// because refusals are final.
//
// # Limits
//
// Prefer a Store in the same process if you can.
//
//   - An event counts as stored if the relay answers OK, even if the relay has not written it durably
//     or has a newer version.
//   - The outcome of a refused event is read from the text of the OK ("duplicate:", "replaced:",
//     "deleted:" and so on). Other texts are final refusals, except texts that begin with "error:",
//     "rate-limited:" or "auth-required:".
//   - If one second has more events than the relay returns in one answer, reading ends in
//     [ErrIncomplete], and reconciliation is replaced by reading pages. A start continues with the
//     events that were read.
//   - If the relay disconnects because of one event, the others are published again one by one. That
//     event is retried after growing waits. Messages longer than the limit in the relay's NIP-11
//     document are not sent.
//   - Only authors can delete events. Announcements that no repository lists any more stay.
//   - The relay does not learn where an event came from.
//   - Has and Keys transfer whole events.
package remoteadapter
