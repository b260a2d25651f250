// Package wstransport is the [relaysync.Transport] for real relays. It opens websockets through the
// guarded dialer of package egress.
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
// A connection has a goroutine that reads, a timer that sends pings, and for a short time a
// goroutine that requests the NIP-11 document. All of them have ended when Close returns. The
// context of Dial limits only the dial. The first error of a connection is final, wraps
// [relaysync.ErrClosed], and is returned by all later calls. A context that ends during Send or
// Receive also ends the connection, because half a message may have been sent. After
// [relaysync.ErrMessageTooLarge] and [wire.ErrRequest] nothing was sent, and the connection
// continues.
//
// The NIP-11 document is requested after the upgrade, so that a host that is not a relay gets one
// connection per attempt instead of two. Info is zero until the document has arrived.
//
// # Back-pressure
//
// A message is read and parsed only while Receive waits for it. Otherwise the reading goroutine
// stops after the header of the next message. Pings before that header are answered, and later
// pings wait behind the message. So a connection whose owner is busy holds no message in memory.
// Messages beyond 64 KiB share [Config.ReadBudget]. A message waits for its part of the budget, and
// the part is returned when Receive is called again. A manager calls Receive when the previous
// message is in its own bounded pipeline. Hosts take turns. A relay that stalls within such a
// message is disconnected, and so is a relay that sends it at less than 64 KiB/s while other hosts
// wait. Time in which a relay's message waits for the budget does not count as silence of the relay
// (see [relaysync.Traffic]).
//
// # Keeping alive
//
// Every 29 s the relay gets a ping. If it sends nothing for 10 s after it, the connection ends. A
// message, a further part of a large message, and any answer count as signs of life. While this
// side does not read, silence proves nothing, so a busy owner never loses a connection. The relay's
// pings are then not read either. Instead of a ping, the relay therefore gets an unsolicited pong,
// which RFC 6455 allows and relays accept as a sign of life. Khatru, for example, disconnects
// clients that send no pong for 60 s.
//
// Concurrency is that of [relaysync.Conn]: one goroutine in Receive, one in Send, any number in
// Close and Info. Connections of one Transport share the read budget and the counters.
package wstransport
