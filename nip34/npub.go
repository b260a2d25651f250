package nip34

import (
	"errors"
	"fmt"

	"github.com/btcsuite/btcd/btcutil/bech32"

	"github.com/graspsync/graspsync"
)

// NPub returns the npub of a key, bech32 (BIP-173) as in NIP-19 and in clone URLs. [ParseNPub]
// reads it.
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
