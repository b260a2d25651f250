package nip34

import (
	"errors"
	"fmt"

	"github.com/btcsuite/btcd/btcutil/bech32"

	"github.com/graspsync/graspsync"
)

// NPub returns the key as clone URLs spell it (NIP-19): bech32 (BIP-173) with the
// prefix "npub". [ParseNPub] reads it; a path of an announcement is compared, and never read.
func NPub(k graspsync.PubKey) string {
	text, err := bech32.EncodeFromBase256("npub", k[:])
	if err != nil {
		panic(err) // 32 bytes have a spelling
	}
	return text
}

// ErrNPub is wrapped by the errors of [ParseNPub].
var ErrNPub = errors.New("not an npub")

// ParseNPub reads a key as NIP-19 spells it. The error wraps [ErrNPub].
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
