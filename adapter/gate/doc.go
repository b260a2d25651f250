// Package gate protects a relay from its clients. khatru starts a goroutine for each message, waits
// for clients that do not read, and has parsers that panic or allocate as much as a message claims.
//
//	http.Serve(listener, gate.New(relay, gate.Config{}))
//
// A Gate accepts the websockets of clients and opens one to the relay for each, over a pipe in
// memory. It forwards checked messages of NIP-01, NIP-42, NIP-45 and NIP-77, only as many as the
// relay has time for. It disconnects clients that do not read. Limits are shared by client address.
//
// For a khatru relay the Gate keeps the subscriptions and calls the relay's hooks, because khatru
// compares published events with filters slowly and with a data race. Hooks may be added later and
// must not be removed. OnConnect and PreventBroadcast are also called for a connection of the Gate
// itself, from 127.0.0.1. The relays of a [khatru.Router], or another relay, keep the subscriptions
// themselves. Their clients may miss an event while another opens a subscription.
//
// Other HTTP requests pass. [Gate.Collector] returns metrics.
package gate
