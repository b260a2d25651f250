// Package gate protects a relay from its clients. khatru has a goroutine for each message, waits for
// clients that do not read, and has parsers that panic or allocate as much as a message claims.
//
//	http.Serve(listener, gate.New(relay, gate.Config{}))
//
// A Gate opens a websocket to the relay for each client, over a pipe in memory. It forwards checked
// messages of NIP-01, NIP-42, NIP-45 and NIP-77, only as many as the relay has time for, and
// disconnects clients that do not read. Limits are shared by client address.
//
// For a khatru relay the Gate keeps the subscriptions and calls the relay's hooks, because khatru
// compares published events with filters slowly and with a data race. Hooks may be added later, not
// removed. OnConnect and PreventBroadcast are also called for a connection of the Gate itself, from
// 127.0.0.1. The relays of a [khatru.Router], and other relays, keep the subscriptions themselves, so
// that clients may miss an event while another opens a subscription.
//
// Other HTTP requests pass. [Gate.Collector] returns metrics.
package gate
