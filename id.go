package graspsync

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrID is wrapped by the errors of [ParseEventID] and [ParsePubKey].
var ErrID = errors.New("not 64 lower-case hex digits")

// EventID is the id of an event, the SHA-256 of its NIP-01 serialization.
type EventID [32]byte

// ParseEventID reads exactly 64 lower-case hex digits, as NIP-01 requires. The error wraps [ErrID].
func ParseEventID(s string) (EventID, error) {
	b, err := parseHex32(s)
	return EventID(b), err
}

func (id EventID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText returns the text of String.
func (id EventID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is [ParseEventID].
func (id *EventID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseEventID(string(text))
	return err
}

// Compare orders ids by their bytes.
func (id EventID) Compare(other EventID) int { return bytes.Compare(id[:], other[:]) }

// PubKey is the x-only public key (BIP-340) of an event's author.
type PubKey [32]byte

// ParsePubKey reads exactly 64 lower-case hex digits, which may be no point of the curve. The error
// wraps [ErrID].
func ParsePubKey(s string) (PubKey, error) {
	b, err := parseHex32(s)
	return PubKey(b), err
}

func (k PubKey) String() string { return hex.EncodeToString(k[:]) }

// MarshalText returns the text of String.
func (k PubKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is [ParsePubKey].
func (k *PubKey) UnmarshalText(text []byte) (err error) {
	*k, err = ParsePubKey(string(text))
	return err
}

// Compare orders keys by their bytes.
func (k PubKey) Compare(other PubKey) int { return bytes.Compare(k[:], other[:]) }

func parseHex32(s string) (b [32]byte, err error) {
	if len(s) != 64 {
		return b, fmt.Errorf("%w: %d bytes", ErrID, len(s))
	}
	var digits [64]byte
	copy(digits[:], s)
	_, err = hex.Decode(b[:], digits[:])
	for _, c := range digits {
		if c-'A' < 6 { // encoding/hex accepts A to F, NIP-01 does not
			err = ErrID
		}
	}
	if err != nil {
		return [32]byte{}, fmt.Errorf("%w: %q", ErrID, s)
	}
	return b, nil
}
