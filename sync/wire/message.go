// Package wire is what a client and a relay say to each other (NIP-01, NIP-11,
// NIP-42, NIP-67, NIP-77) as values, and the codec between these values and the
// JSON on the websocket.
//
// The parser reads strangers' bytes: whatever they are, it returns a message or
// an error, in time and memory proportional to their length.
package wire

import (
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Type tells what a [Message] from a relay is.
type Type uint8

// The messages of a relay. NEG-ERR and its spelling NEG-ERROR are both NegErr.
const (
	TypeEvent Type = iota + 1
	TypeEOSE
	TypeClosed
	TypeNotice
	TypeOK
	TypeAuth
	TypeNegMsg
	TypeNegErr
)

// Hint is what NIP-67 says about an EOSE.
type Hint uint8

// Without a hint nothing is known about completeness.
const (
	HintNone Hint = iota
	HintFinish
	HintMore
)

// Message is one message of a relay. Which fields are set depends on Type; the
// rest are zero. A Message owns its memory: nothing in it points into a read
// buffer.
type Message struct {
	Type Type
	// Sub is the subscription or NEG session that EVENT, EOSE, CLOSED, NEG-MSG
	// and NEG-ERR belong to.
	Sub string
	// Event of an EVENT. Neither its id nor its signature was checked; sig has the right length
	// in lower-case hex.
	Event graspsync.Event
	// Known: the id was known already, so that nothing was read of the event but id, author,
	// kind and time, as the relay has them.
	Known bool
	// ID of the event that an OK speaks of.
	ID graspsync.EventID
	// Accepted is the verdict of an OK.
	Accepted bool
	// Text is the reason of CLOSED, NEG-ERR and OK, the text of NOTICE, the
	// challenge of AUTH. A stranger wrote it: at most [graspsync.MaxText] bytes, not escaped.
	Text string
	// Hint of an EOSE.
	Hint Hint
	// Max is the fourth element of a NEG-ERR, the most records the relay would
	// reconcile; 0 if it said nothing.
	Max int
	// Payload of a NEG-MSG, decoded from hex.
	Payload []byte
	// Size of the message as received, in bytes after inflation.
	Size int
}

// RequestType tells what a [Request] is.
type RequestType uint8

// The messages of a client.
const (
	TypeReq RequestType = iota + 1
	TypeClose
	TypePublish // EVENT
	TypeAnswer  // AUTH
	TypeNegOpen
	TypeNegSend // NEG-MSG
	TypeNegClose
)

// Request is one message of a client.
type Request struct {
	Type RequestType
	// Sub is the subscription or NEG session; 1 to 64 bytes.
	Sub string
	// Filters of a REQ, at least one; exactly one for NEG-OPEN.
	Filters []nostr.Filter
	// Event of EVENT and AUTH.
	Event *nostr.Event
	// Payload of NEG-OPEN and NEG-MSG, sent as hex.
	Payload []byte
}

// Info is what a relay's NIP-11 document says of its limits. Zero means that it
// says nothing, or nothing usable: these documents are often wrong, so every
// value is a hint.
type Info struct {
	Name             string
	Software         string
	NIPs             []int
	MaxMessageLength int // bytes
	MaxSubscriptions int
	MaxFilters       int
	MaxLimit         int // events
	MaxSubIDLength   int
	AuthRequired     bool
}
