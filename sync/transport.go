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
// All methods may be called concurrently. Dial returns when the connection can be used or
// has failed, and never later than ctx allows; ctx bounds the dial only, not the
// life of the connection. Retries are the caller's business.
//
// What a Transport has to keep over a restart, such as what it counts of addresses, it
// exports; one that has nothing returns nil. The manager asks the transport that [New] was
// given, if there is a [Config.State]: it calls Import at most once, before it dials any
// relay but our own, and Export about once a minute and at the end. A Transport that wraps
// another passes on both, as by embedding it.
type Transport interface {
	Dial(ctx context.Context, relay graspsync.RelayURL) (Conn, error)
	// Export returns what is to be kept, in chunks that mean something to the
	// Transport only. Chunks that are as they were are not written again. The manager
	// does not change them.
	Export() [][]byte
	// Import takes over what an earlier process exported. A chunk that was lost is
	// nil; anything else may be damaged as well.
	Import(chunks [][]byte)
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
	// Info is what the relay's NIP-11 document says, as far as it is known by now. It may
	// be called at any time and by any goroutine, as InfoKnown and Traffic may.
	Info() wire.Info
	// InfoKnown returns a channel that is closed once Info will not change any more: from
	// the start, where Dial has seen to it. The first requests wait for that, two seconds
	// at most: with Info they are the right ones, without it careful ones.
	InfoKnown() <-chan struct{}
	// Traffic is what is known of the bytes that came, since the connection was made.
	Traffic() Traffic
	// Close ends the connection and frees what it holds. It does not wait for the
	// relay, and may be called again.
	Close() error
}

// Skimmer is what a [Conn] may be as well, for events that come many times: those whose ids
// known knows need not be read, and Receive may return them with [wire.Message.Known] set. Skim is
// called before Receive is, if ever; known may be called by any goroutine, and never blocks.
type Skimmer interface {
	Skim(known func(graspsync.EventID) bool)
}

// Traffic is what a [Conn] knows of the bytes that its relay sent. What it does not know
// is zero.
type Traffic struct {
	// RemoteAddr is the address at which the relay was found; it does not change. Relays
	// at one address share what strangers may have of our connections, however many names
	// they have.
	RemoteAddr netip.Addr
	// DroppedBytes is the size of the messages that were dropped. They are charged to the
	// relay's allowance, as are those that lead to nothing.
	DroppedBytes uint64
	// ReadWaited is for how long Receive has not read from the relay since we had no
	// memory for its messages, a wait under way included. A relay that could not answer
	// in that time is not late.
	ReadWaited time.Duration
}
