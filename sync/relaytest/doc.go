// Package relaytest provides relays in memory for tests: honest ones, and relays that are slow,
// capped, rate limited, broken or hostile like real relays.
//
// A [Network] is a relaysync.Transport that connects to its [Relay] values:
//
//	net := relaytest.NewNetwork()
//	hub := net.Add("wss://hub.example", relaytest.Behavior{})
//	old := net.Add("wss://old.example", relaytest.Behavior{Negentropy: relaytest.NegNotice, Cap: 100})
//	alice := relaytest.NewKey("alice")
//	hub.Publish(alice.Hosted(1700000000, "demo", "grasp.example"))
//	... run something over net ...
//	require.Empty(t, hub.Violations())
//
// The zero [Behavior] is an honest relay without limits. Each field makes it worse in one way.
// Fields can be combined, and [Relay.Update] changes them while connections are open.
// [Behavior.Handle] scripts single messages.
//
// [LocalRelay] and [GraspRelay] (rust-nostr, ngit-grasp), [Strfry] and well-known configurations of
// it, and [Khatru] return the behavior of real programs with their limits and messages:
//
//	slow := relaytest.GraspRelay()
//	slow.Latency = time.Second
//	net.Add("wss://slow.example", slow)
//
// A relay is stricter than real relays. [Relay.Violations] returns client behavior that some real
// relay would punish. A relay also records requests, connections and traffic.
//
// Status of a SyncManager can be one second old. A test that waits for a change must use
// Config.Observe, which is called immediately, or wait longer than that.
//
// # Time
//
// Relays work inside and outside a bubble of testing/synctest; for a bubble, connect inside it.
// Connections have no goroutines: a relay works while its client calls Send or Receive, so unread
// messages are not sent and no goroutine leaks. All delays are timers.
//
// # Events
//
// [Key] creates signed events of the relevant kinds. The same arguments always give the same event.
// A signature and its check take about 0.1 ms each. [NewCheapKey] creates faster signatures that
// only [CheapVerifier] accepts.
//
// # Suites
//
// [RunTransport] is the suite for every relaysync.Transport. Package relayserver serves a [Relay]
// on a real socket.
//
// All types are safe for concurrent use.
package relaytest
