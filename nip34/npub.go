package nip34

import (
	"errors"
	"fmt"

	"github.com/graspsync/graspsync"
)

// charset has the letters of bech32 (BIP-173), of which each stands for five bits.
const charset = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"

// NPub returns the key as clone URLs spell it (NIP-19): bech32 (BIP-173) with the
// prefix "npub". [ParseNPub] reads it; a path of an announcement is compared, and never read.
func NPub(k graspsync.PubKey) string {
	out := make([]byte, 0, len("npub1")+52+6)
	out = append(out, "npub1"...)
	sum := checksumOf("npub", nil)
	// 256 bits in groups of five, the last one filled up with zeros.
	var bits, n uint
	for _, b := range append(k[:], 0) {
		bits, n = bits<<8|uint(b), n+8
		for ; n >= 5 && len(out) < len("npub1")+52; n -= 5 {
			group := byte(bits >> (n - 5) & 31)
			sum.add(group)
			out = append(out, charset[group])
		}
	}
	for range 6 {
		sum.add(0)
	}
	for i := range 6 {
		out = append(out, charset[(sum.value^1)>>(5*(5-i))&31])
	}
	return string(out)
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
		return graspsync.PubKey{}, fmt.Errorf("%w: something else of NIP-19", ErrNPub)
	}
	return graspsync.PubKey(data), nil
}

// checksumOf begins with a prefix, and adds groups of five bits.
func checksumOf(prefix string, groups []byte) checksum {
	sum := checksum{1}
	for _, c := range []byte(prefix) {
		sum.add(c >> 5)
	}
	sum.add(0)
	for _, c := range []byte(prefix) {
		sum.add(c & 31)
	}
	for _, g := range groups {
		sum.add(g)
	}
	return sum
}

// checksum is the BCH code of BIP-173 over groups of five bits.
type checksum struct{ value uint32 }

func (s *checksum) add(group byte) {
	top := s.value >> 25
	s.value = s.value&0x1ffffff<<5 ^ uint32(group)
	for i, g := range [5]uint32{0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3} {
		if top>>i&1 == 1 {
			s.value ^= g
		}
	}
}
