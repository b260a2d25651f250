// Package remoteadapter makes a relay in another process, reached over websocket only,
// a [relaysync.Store]: what sync brings is published to it, and what it has is asked
// for with REQ, page by page to the end.
//
//	store, err := remoteadapter.New(url, transport, remoteadapter.Config{Identity: identity})
//	defer store.Close()
//	manager, err := relaysync.New(store, others, identity, relaysync.Config{
//		OwnRelay: url, OwnTransport: transport,
//	})
//
// The transport must be allowed to reach the relay, which for one with an internal
// address takes a dialer of its own: the one for strangers' URLs refuses such
// addresses, and must.
//
// # What the relay must do
//
// It keeps the newest version of what is replaceable, executes deletions and requests to
// vanish (of which the Store is told by Identity which ones concern the relay), and serves
// all that it has to us, without asking for AUTH. It must accept what is published to
// it by us without limits of rate, and should not run a policy of its own that is
// narrower than the manager's: what it refuses is refused for good.
//
// # Limits
//
// A Store in the same process is better in every way, where there is a choice:
//
//   - That an event was stored is what the relay's OK says. One that says so before
//     the event is durable, or of an event that it dropped since it has a newer one,
//     is believed.
//   - What became of an event that was not accepted is read from the words of the OK
//     ("duplicate:", "replaced:", "deleted:", ...). A refusal in other words counts
//     as one for good, unless it begins with "error:", "rate-limited:" or
//     "auth-required:".
//   - A second that holds more events than the relay gives in one answer can't be read
//     by pages. All else is read, but reading ends in [ErrIncomplete], and with it a
//     reconciliation becomes one by pages. A start goes on with what was read.
//   - A relay that cuts the connection over an event that it can't stand is sent the
//     others again, in parts; that event is tried again ever more seldom. One that says
//     in its information document (NIP-11) how long a message may be is not sent such.
//   - Nothing can be removed but by its author: announcements that were stored since they
//     were listed stay when nobody lists them any more.
//   - Provenance is lost: the relay is not told where an event came from.
//   - Has and Stamps fetch whole events; that costs what it sounds like.
package remoteadapter
