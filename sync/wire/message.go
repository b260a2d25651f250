// Package wire contains the messages between a client and a relay (NIP-01, NIP-11, NIP-42, NIP-67,
// NIP-77) and their codec.
//
// The parser returns a message or an error for any input, in time and memory proportional to its
// length.
package wire

import (
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Type is the type of a [Message] from a relay.
type Type uint8

// Messages of a relay. NEG-ERR and NEG-ERROR are both NegErr.
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

// Hint is the completeness of an answer by NIP-67, in an EOSE.
type Hint uint8

// Without a hint the completeness is unknown.
const (
	HintNone Hint = iota
	HintFinish
	HintMore
)

// Message is one message of a relay. The fields depend on Type. A Message shares no memory with a
// read buffer.
type Message struct {
	Type Type
	Sub  string // subscription id
	// Event of an EVENT. Its id and signature are not verified.
	Event graspsync.Event
	// Known: the id was known. Then only id, author, kind and time of the event were read.
	Known    bool
	ID       graspsync.EventID // of an OK
	Accepted bool              // of an OK
	// Text is the reason of CLOSED, NEG-ERR and OK, the text of NOTICE, or the challenge of AUTH,
	// at most [graspsync.MaxText] bytes, not escaped.
	Text string
	Hint Hint // of an EOSE
	// Max of a NEG-ERR is the maximum number of records that the relay reconciles, or 0.
	Max     int
	Payload []byte // of a NEG-MSG, decoded
	Size    int    // of the received message, in bytes after decompression
}

// RequestType is the type of a [Request].
type RequestType uint8

// Messages of a client.
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
	Sub  string // 1 to 64 bytes
	// Filters of a REQ (at least one) or a NEG-OPEN (exactly one).
	Filters []nostr.Filter
	Event   *nostr.Event // of EVENT and AUTH
	Payload []byte       // of NEG-OPEN and NEG-MSG; sent as hex
}

// Info contains the limits in a relay's NIP-11 document. Zero means missing or invalid. Every value
// is only a hint.
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
