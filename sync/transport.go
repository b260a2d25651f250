package sync

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// Errors that a [Transport] and its connections wrap.
var (
	// ErrClosed is returned by Send and Receive after either side has closed the connection.
	ErrClosed = errors.New("connection closed")
	// ErrForbidden is returned by Dial for a relay that may never be dialed, because of its
	// address, or because it is not encrypted.
	ErrForbidden = errors.New("relay not allowed")
	// ErrNotDialed is wrapped by an error of Dial if a temporary local reason prevented the
	// attempt. If an error in its chain has a method RetryAfter() time.Duration, the manager
	// retries after that time.
	ErrNotDialed = errors.New("relay not dialed")
	// ErrMessageTooLarge is returned by Send for a request that is larger than the relay accepts.
	// The connection stays usable.
	ErrMessageTooLarge = errors.New("message too large")
)

// A Transport opens connections to relays, such as package wstransport. All methods may be called
// concurrently. Dial returns when the connection is usable or has failed, at the latest when ctx
// ends. ctx does not limit the life of the connection. Dial does not retry.
//
// A Transport exports state that must survive a restart, such as counters of addresses, or returns
// nil. If [Config.State] is set, the manager calls Import at most once, before the first dial, and
// Export about once a minute and at the end. A Transport that wraps another one forwards both
// calls.
type Transport interface {
	Dial(ctx context.Context, relay graspsync.RelayURL) (Conn, error)
	// Export returns the state in chunks, which the manager does not change. Unchanged chunks are not
	// written again.
	Export() [][]byte
	// Import restores the state that an earlier process exported. A lost chunk is nil. Other chunks
	// may be damaged.
	Import(chunks [][]byte)
}

// A Conn is one connection to one relay. One goroutine at a time calls Receive, and one at a time
// calls Send. Any goroutine may call Close, also while Receive and Send block. Then both return an
// error that wraps [ErrClosed]. The first error of Receive or Send is final.
//
// A Conn must not read ahead without bound while Receive is not called. It drops and counts
// malformed messages, and disconnects from a relay that sends nothing else, is silent or stops
// reading. A returned Message belongs to the caller. A Request belongs to the Conn until Send
// returns.
type Conn interface {
	Send(ctx context.Context, r wire.Request) error
	Receive(ctx context.Context) (wire.Message, error)
	// Info returns the relay's NIP-11 document as far as it is known now. Any goroutine may call
	// Info, InfoKnown and Traffic.
	Info() wire.Info
	// InfoKnown returns a channel that is closed when Info will not change any more. The first
	// requests wait for it for at most 2 seconds.
	InfoKnown() <-chan struct{}
	// Traffic returns measurements since the connection was opened.
	Traffic() Traffic
	// Close closes the connection without waiting for the relay, and may be called more than once.
	Close() error
}

// A Skimmer is a [Conn] that can skip the body of a known event. If known reports true for an id,
// Receive may return the event with [wire.Message.Known] set. Skim is called before Receive. known
// never blocks.
type Skimmer interface {
	Skim(known func(graspsync.EventID) bool)
}

// Traffic contains measurements of a [Conn]. A value that a Conn does not measure is zero.
type Traffic struct {
	// RemoteAddr is the relay's network address. It does not change.
	RemoteAddr netip.Addr
	// DroppedBytes is the total size of dropped messages, which count against the relay's
	// allowance.
	DroppedBytes uint64
	// ReadWaited is the total time in which Receive did not read because there was no memory for
	// messages. It extends the deadlines of the relay.
	ReadWaited time.Duration
}

// A Signer signs authentication events (NIP-42). Use a separate key, because relays can recognize
// connections by it. SignAuth may be called concurrently.
type Signer interface {
	// SignAuth sets the author, id and signature of an event of kind 22242 and nothing else. It
	// must return when ctx ends.
	SignAuth(ctx context.Context, event *nostr.Event) error
}

// signTimeout is the time limit for one signature.
const signTimeout = 15 * time.Second

var errSigned = errors.New("the Signer changed the event")

// signAuth answers a challenge of the relay that was dialed as u. It names only this URL, so that
// the relay cannot authenticate with it at another relay.
func signAuth(ctx context.Context, t *telemetry, signer Signer, u graspsync.RelayURL, challenge string) (ev *nostr.Event, err error) {
	defer t.recovered(&err, "signer")
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	given := nostr.Event{
		Kind: nostr.KindClientAuthentication, CreatedAt: nostr.Now(),
		Tags: nostr.Tags{{"relay", u.String()}, {"challenge", challenge}},
	}
	signed := given
	signed.Tags = nostr.Tags{{"relay", u.String()}, {"challenge", challenge}}
	if err := signer.SignAuth(ctx, &signed); err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	given.PubKey = signed.PubKey
	if signed.ID != given.GetID() || !signed.CheckID() {
		return nil, fmt.Errorf("%w: its id is wrong", errSigned)
	}
	if ok, err := signed.CheckSignature(); err != nil || !ok {
		return nil, fmt.Errorf("%w: its signature is wrong", errSigned)
	}
	return &signed, nil
}
