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
// A connection has a goroutine that reads, one that sends pings, and one that requests the NIP-11
// document after the upgrade. All of them have ended when Close returns. The context of Dial limits
// only the dial. The first error is final, wraps [relaysync.ErrClosed], and is returned by all later
// calls. A context that ends during Send or Receive also ends the connection. After
// [relaysync.ErrMessageTooLarge] and [wire.ErrRequest] the connection continues.
//
// # Back-pressure
//
// A message is read only while Receive waits for it. Messages beyond 64 KiB wait for a part of
// [Config.ReadBudget], which is returned when Receive is called again. A relay that stalls within
// such a message is disconnected, and so is one that sends it at less than 64 KiB/s while other
// hosts wait. Waiting for the budget does not count as silence (see [relaysync.Traffic]).
//
// # Keeping alive
//
// Every 29 s the relay gets a ping. If it sends nothing for 10 s after it, the connection ends. While
// this side does not read, it gets an unsolicited pong instead (RFC 6455), because khatru
// disconnects clients that send no pong for 60 s.
package wstransport
