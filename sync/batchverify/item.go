package batchverify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/big"

	"github.com/consensys/gnark-crypto/ecc/secp256k1"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fp"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fr"
	"github.com/nbd-wtf/go-nostr"
)

// Errors of an event found before any equation is checked.
var (
	errID        = errors.New("id is not 64 lower-case hex digits")
	errKeyHex    = errors.New("public key is not 64 lower-case hex digits")
	errKey       = errors.New("public key is not on the curve")
	errSigHex    = errors.New("not 128 lower-case hex digits")
	errR         = errors.New("r is not on the curve")
	errS         = errors.New("s is not below the order of the group")
	errNoEvent   = errors.New("no event")
	challengeTag = sha256.Sum256([]byte("BIP0340/challenge"))
)

// lift returns the point with x coordinate x and an even y, or false if none exists.
func lift(x *[32]byte) (p secp256k1.G1Affine, ok bool) {
	if p.X.SetBytesCanonical(x[:]) != nil { // not below the prime of the field
		return p, false
	}
	square, seven := p.X, fp.NewElement(7)
	square.Square(&square).Mul(&square, &p.X).Add(&square, &seven)
	if p.Y.Sqrt(&square) == nil {
		return p, false
	}
	if p.Y.Bits()[0]&1 == 1 {
		p.Y.Neg(&p.Y)
	}
	return p, true
}

// item is the parsed signature of one event.
type item struct {
	author  [32]byte
	key, r  secp256k1.G1Affine
	s, e    fr.Element
	bad     bool
	verdict *error
}

// parse parses key, signature and id. After success the equation must be checked.
func (it *item) parse(ev *nostr.Event, keys *keyCache) error {
	if ev == nil {
		return errNoEvent
	}
	var id [32]byte
	var sig [64]byte
	switch {
	case !decodeHex(id[:], ev.ID):
		return errID
	case !decodeHex(it.author[:], ev.PubKey):
		return errKeyHex
	case !decodeHex(sig[:], ev.Sig):
		return errSigHex
	}
	return it.set(keys, &sig, id[:])
}

// set sets all fields except the author. The message has any length, as BIP-340 allows.
func (it *item) set(keys *keyCache, sig *[64]byte, message []byte) error {
	r, s := (*[32]byte)(sig[:32]), sig[32:]
	if it.s.SetBytesCanonical(s) != nil {
		return errS
	}
	var ok bool
	if it.key, ok = keys.lift(&it.author); !ok {
		return errKey
	}
	if it.r, ok = lift(r); !ok {
		return errR
	}
	var buf [5 * 32]byte
	input := append(buf[:0], challengeTag[:]...)
	input = append(input, challengeTag[:]...)
	input = append(input, r[:]...)
	input = append(input, it.author[:]...)
	input = append(input, message...)
	hash := sha256.Sum256(input)
	it.e.SetBytes(hash[:]) // modulo the order
	return nil
}

// check verifies one signature: s*G - e*P = R. BIP-340 requires no more, because R has the x
// coordinate r and an even y.
func (it *item) check() bool {
	var minusE fr.Element
	var first, second big.Int
	var left, right secp256k1.G1Jac
	left.JointScalarMultiplicationBase(&it.key, it.s.BigInt(&first), minusE.Neg(&it.e).BigInt(&second))
	return left.Equal(right.FromAffine(&it.r))
}

// decodeHex decodes exactly 2*len(dst) lower-case hex digits.
func decodeHex(dst []byte, text string) bool {
	if len(text) != 2*len(dst) {
		return false
	}
	for i := range len(text) {
		if text[i] >= 'A' && text[i] <= 'F' {
			return false
		}
	}
	var buf [128]byte
	_, err := hex.Decode(dst, buf[:copy(buf[:], text)])
	return err == nil
}
