// Package gate protects a relay from its clients. Relays are made for well-behaved clients: khatru
// starts a goroutine for each message, waits for clients that do not read, and parses messages with
// code that panics or allocates as much as a message claims. Any client can end such a server.
//
//	http.Serve(listener, gate.New(relay, gate.Config{}))
//
// A Gate accepts the websockets of clients and opens one to the relay for each, over a pipe in
// memory. It forwards only checked messages of NIP-01, NIP-42, NIP-45 and NIP-77, encoded again,
// and only as many as the relay has time for. It reads everything that the relay writes, and
// disconnects clients that do not read, with a reason. Stored events wait for slow clients instead
// ([Gate.Pace]). Limits are shared by client address. The Gate uses its own subscription ids at the
// relay, so a REQ with a used id replaces the subscription, as NIP-01 demands.
//
// For a khatru relay the Gate keeps the subscriptions itself and calls the relay's hooks as khatru
// does, because khatru compares published events with filters slowly and with a data race. An event
// that several filters of a subscription match is then sent once. Hooks
// may be added later and must not be removed. OnConnect is also called for a connection of the Gate
// itself, from 127.0.0.1. If several relays of a [khatru.Router] are paced, or the relay is no
// khatru relay, the relay keeps the subscriptions. A client may then miss an event, or get it
// twice, while another client opens or closes a subscription.
//
// Other HTTP requests pass. The body of a management request (NIP-86) is limited. [Gate.Collector]
// returns metrics.
package gate
