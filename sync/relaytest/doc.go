// Package relaytest has relays that live in memory and do what a test tells them
// to: honest ones, and ones that are slow, capped, cut, rate limited, confused or
// hostile, in the ways that real relays are.
//
// A [Network] is a relaysync.Transport; its [Relay] values are what the Transport
// reaches:
//
//	net := relaytest.NewNetwork()
//	hub := net.Add("wss://hub.example", relaytest.Behavior{})
//	old := net.Add("wss://old.example", relaytest.Behavior{Negentropy: relaytest.NegNotice, Cap: 100})
//	alice := relaytest.NewKey("alice")
//	hub.Publish(alice.Hosted(1700000000, "demo", "grasp.example"))
//	... run something over net ...
//	require.Empty(t, hub.Violations())
//
// The zero [Behavior] is an honest, modern relay; each field makes it worse in one
// way, all can be combined, and [Relay.Update] changes them while connections are
// open. What no field can say is said by [Behavior.Handle], which scripts the
// messages one by one.
//
// Some are like the programs that relays run, with their limits, to the word:
// [LocalRelay] and [GraspRelay] (rust-nostr, ngit-grasp), [Strfry] and how well-known
// relays set it up, [Khatru]. Each returns a Behavior to change as one likes:
//
//	slow := relaytest.GraspRelay()
//	slow.Latency = time.Second
//	net.Add("wss://slow.example", slow)
//
// A relay is stricter than real ones: it notes what a client did that some real
// relay somewhere would take amiss ([Relay.Violations]). It also keeps what was
// asked and when, who is connected and what was sent.
//
// What a SyncManager says of itself in Status may be as of a second ago. A test that waits for
// something waits for it with Config.Observe, which is told as it happens, or for longer than that.
//
// # Time
//
// Everything works in a bubble of testing/synctest, if the connections are made in
// it, and outside of one. Connections have no goroutine of their own: a relay
// thinks while its client calls Send or Receive. So nothing is sent that nobody
// reads, and nothing leaks. All delays are timers.
//
// # Events
//
// [Key] makes signed events of the kinds that matter here, the same ones for the
// same arguments. Signing and checking cost about 0.1 ms each; where that is too
// much, [NewCheapKey] makes events whose signatures only [CheapVerifier] accepts.
//
// # Suites
//
// [RunTransport] is the suite that any relaysync.Transport must pass. Package
// relayserver serves a [Relay] over a real socket.
//
// All types are safe for concurrent use.
package relaytest
