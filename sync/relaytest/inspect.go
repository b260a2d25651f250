package relaytest

import (
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Dial is an attempt to connect.
type Dial struct {
	At  time.Time
	Err error // nil if it succeeded
}

// Seen is a message that a client sent.
type Seen struct {
	At   time.Time
	Conn int // 1 is the first connection of the relay
	Size int // bytes of its JSON
	wire.Request
}

// Subscription is an open subscription.
type Subscription struct {
	Conn    int
	ID      string
	Filters []nostr.Filter
}

// Traffic is the traffic of all connections of a relay.
type Traffic struct {
	MessagesSent, MessagesReceived int // from and to the relay
	BytesSent, BytesReceived       int64
	EventsSent                     int
}
