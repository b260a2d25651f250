package sync

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// Sentinels that a [Transport] and its connections wrap.
var (
	// ErrClosed is what Send and Receive return once the connection has ended,
	// from whichever side.
	ErrClosed = errors.New("connection closed")
	// ErrForbidden is returned by Dial for a relay that may never be reached: our
	// own address, one that is not public, plaintext where only TLS is allowed. No
	// later attempt is expected to fare better.
	ErrForbidden = errors.New("relay not allowed")
	// ErrNotDialed is wrapped by an error of Dial if no attempt reached the relay for
	// reasons of ours that pass: others had their share of attempts at its address, or
	// our network is down. That says nothing about the relay. If there is a method
	// RetryAfter() time.Duration in its chain, that is when to try again.
	ErrNotDialed = errors.New("relay not dialed")
	// ErrMessageTooLarge is returned by Send for a request that is larger than the
	// relay takes; nothing was sent and the connection is unharmed.
	ErrMessageTooLarge = errors.New("message too large")
)

// Transport opens connections to relays. Package wstransport is the one for real
// relays, package relaytest the one for tests.
//
// Dial may be called concurrently. It returns when the connection can be used or
// has failed, and never later than ctx allows; ctx bounds the dial only, not the
// life of the connection. Retries are the caller's business.
type Transport interface {
	Dial(ctx context.Context, relay graspsync.RelayURL) (Conn, error)
}

// InfoAwaiter is a [Conn] that learns what its relay says of itself only after Dial
// has returned. The channel is closed once Info will not change any more; nobody
// waits for it longer than two seconds.
type InfoAwaiter interface {
	InfoKnown() <-chan struct{}
}

// DropCounter is a [Conn] that tells how many bytes of messages it has dropped since
// it was made. They are charged to the relay's allowance.
type DropCounter interface {
	DroppedBytes() uint64
}

// ReadWaiter is a [Conn] that tells for how long, since it was made, Receive has not
// read from the relay since we had no memory for its messages. A relay that could not
// answer in that time is not late. It may be called at any time.
type ReadWaiter interface {
	ReadWaited() time.Duration
}

// Addressed is a [Conn] that tells at which address its relay was found. Relays at one
// address share what strangers may have of our connections, however many names they
// have. It is asked once, when Dial has returned; the zero Addr means that it is not known.
type Addressed interface {
	RemoteAddr() netip.Addr
}

// Conn is one connection to one relay.
//
// Receive is called by one goroutine at a time, Send by another one at a time,
// Close by any, also while the others block: both then return an error that
// wraps [ErrClosed]. Receive returns the relay's messages in the order in which
// they came; while nobody calls it the relay is not read from, which is the
// back-pressure on a relay that sends faster than we store. Malformed messages
// are dropped and counted by the implementation; one that sends nothing else is
// disconnected. A Message belongs to the caller, a Request to the callee until
// Send returns. A relay that falls silent, or stops reading, ends the connection
// by itself. The first error of Receive or Send is final.
type Conn interface {
	Send(ctx context.Context, r wire.Request) error
	Receive(ctx context.Context) (wire.Message, error)
	// Info is what the relay's NIP-11 document says, as far as it is known by now.
	Info() wire.Info
	// Close ends the connection and frees what it holds. It does not wait for the
	// relay, and may be called again.
	Close() error
}
