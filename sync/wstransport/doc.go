// Package wstransport is the [relaysync.Transport] for real relays: websockets,
// through the guarded dialer of package egress.
//
//	dialer, err := egress.NewDialer(egress.Config{})
//	...
//	t, err := wstransport.New(wstransport.Config{Dialer: dialer})
//	...
//	conn, err := t.Dial(ctx, relay)
//	...
//	defer conn.Close()
//	err = conn.Send(ctx, wire.Request{Type: wire.TypeReq, Sub: "1", Filters: fs})
//	...
//	m, err := conn.Receive(ctx)
//
// # Life of a connection
//
// A connection has a goroutine that reads, a timer that keeps it alive, and for a
// moment one that fetches the relay's NIP-11 document. All have ended when Close
// returns. The context of Dial bounds the dial only. Whatever ends a connection,
// the first error says so and stays: later calls return the same one, and it wraps
// [relaysync.ErrClosed]. A context that ends during Send or Receive ends the
// connection too, since half a message may be on the way. Not final are
// [relaysync.ErrMessageTooLarge] and [wire.ErrRequest]: nothing was sent.
//
// The NIP-11 document is fetched once the upgrade has succeeded, so that a host
// which is no relay sees one connection per attempt and not two. Until it is here,
// and if it never comes, Info is zero.
//
// # Back-pressure
//
// While nobody calls Receive, no message is read: the reading goroutine goes as
// far as the header of the next one and waits there. Until it has met such a
// header it answers the relay's pings; after that they queue up behind the
// message. Each message is read and parsed when Receive asks for it, so a
// connection whose owner is busy holds no message at all, however large the next
// one is. Those being read share [Config.ReadBudget]: beyond 64 KiB a message waits
// for its turn, and what it took is given back when Receive is called again, which a
// manager does when the message has gone into its own bounded pipeline. The host has
// its turn that has lately taken least time, and hosts that have yet to prove themselves
// leave half of the budget to others. A relay that stalls within such a message is cut,
// and so is one that sends it at less than 64 KiB a second while others wait. A relay
// whose message waits is not late: [relaysync.Traffic].
//
// # Staying alive
//
// Every 29 s the relay is sent a ping. If it sends nothing at all
// for 10 s after that, it counts as dead: an answer, a message, or
// a further part of a large message are all signs of life. While our own side is
// not reading, this can't be judged, and is not: a connection is never ended
// because its owner is busy. The relay must not take us for dead either, although
// its pings can't be reached then. So instead of a ping it gets a pong it did not
// ask for, which RFC 6455 allows as a sign of life and which relays count as one
// (khatru, for example, cuts who sends no pong for 60 s).
//
// Concurrency is that of [relaysync.Conn]: one goroutine in Receive, one in Send,
// any in Close and Info. Connections of one Transport share nothing but counters.
package wstransport
