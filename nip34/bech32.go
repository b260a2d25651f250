package nip34

import (
	"errors"
	"fmt"

	"github.com/btcsuite/btcd/btcutil/bech32"

	"github.com/graspsync/graspsync"
)

var errBech32 = errors.New("malformed, or mistyped: its checksum is wrong")

// maxBech32 is the maximum length of a NIP-19 text in characters. The longest naddr has less than
// half of it.
const maxBech32 = 2048

// decodeBech32 decodes bech32 (BIP-173) of any length, as NIP-19 uses it.
func decodeBech32(s string) (prefix string, data []byte, err error) {
	if len(s) > maxBech32 {
		return "", nil, errBech32
	}
	prefix, groups, err := bech32.DecodeNoLimit(s)
	if err != nil {
		return "", nil, errBech32
	}
	if data, err = bech32.ConvertBits(groups, 5, 8, false); err != nil {
		return "", nil, errBech32
	}
	return prefix, data, nil
}

const (
	tlvSpecial = 0 // the event id, or the identifier
	tlvAuthor  = 2
	tlvKind    = 3
)

// entries returns the first entry of each type of an nevent or naddr. It stops at a truncated
// entry.
func entries(data []byte) map[byte][]byte {
	out := make(map[byte][]byte)
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		of, value := data[0], data[2:2+int(data[1])]
		if _, again := out[of]; !again {
			out[of] = value
		}
		data = data[2+len(value):]
	}
	return out
}

// NPub returns the npub of a key (NIP-19).
func NPub(k graspsync.PubKey) string {
	text, err := bech32.EncodeFromBase256("npub", k[:])
	if err != nil {
		panic(err) // cannot happen for 32 bytes
	}
	return text
}

// ErrNPub is wrapped by the errors of [ParseNPub].
var ErrNPub = errors.New("not an npub")

// ParseNPub reads an npub (NIP-19). The error wraps [ErrNPub].
func ParseNPub(s string) (graspsync.PubKey, error) {
	prefix, data, err := decodeBech32(s)
	switch {
	case err != nil:
		return graspsync.PubKey{}, fmt.Errorf("%w: %w", ErrNPub, err)
	case prefix != "npub" || len(data) != len(graspsync.PubKey{}):
		return graspsync.PubKey{}, fmt.Errorf("%w: another NIP-19 entity", ErrNPub)
	}
	return graspsync.PubKey(data), nil
}
