package batchverify

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/nbd-wtf/go-nostr"
)

// What can be wrong with an event before any equation is looked at.
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

// affine is a point other than infinity, its coordinates normalized.
type affine struct {
	x, y secp256k1.FieldVal
}

// jacobian sets p to the point.
func (a *affine) jacobian(p *secp256k1.JacobianPoint) {
	p.X.Set(&a.x)
	p.Y.Set(&a.y)
	p.Z.SetInt(1)
}

// lift sets the point to the one with that x coordinate and an even y. It reports
// whether there is one.
func (a *affine) lift(x *[32]byte) bool {
	if a.x.SetBytes(x) != 0 { // not below p
		return false
	}
	return secp256k1.DecompressY(&a.x, false, &a.y)
}

// item is the signature of one event, parsed.
type item struct {
	author  [32]byte
	key, r  affine
	s, e    secp256k1.ModNScalar
	bad     bool
	verdict *error
}

// parse reads key, signature and id. What it accepts has an equation to be checked.
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

// set takes the author from the item, and the rest from its arguments. The message
// is of any length, as BIP-340 allows.
func (it *item) set(keys *keyCache, sig *[64]byte, message []byte) error {
	r, s := (*[32]byte)(sig[:32]), (*[32]byte)(sig[32:])
	if it.s.SetBytes(s) != 0 {
		return errS
	}
	if !keys.lift(&it.key, &it.author) {
		return errKey
	}
	if !it.r.lift(r) {
		return errR
	}
	var buf [5 * 32]byte
	input := append(buf[:0], challengeTag[:]...)
	input = append(input, challengeTag[:]...)
	input = append(input, r[:]...)
	input = append(input, it.author[:]...)
	input = append(input, message...)
	hash := sha256.Sum256(input)
	it.e.SetBytes(&hash) // reduced modulo the order
	return nil
}

// check tells by itself whether the signature is valid: s*G - e*P = R. As R has the
// x coordinate r and an even y, that is all BIP-340 asks for.
func (it *item) check() bool {
	var key, left, right secp256k1.JacobianPoint
	var e secp256k1.ModNScalar
	it.key.jacobian(&key)
	e.NegateVal(&it.e)
	secp256k1.ScalarBaseMultNonConst(&it.s, &left)
	secp256k1.ScalarMultNonConst(&e, &key, &right)
	secp256k1.AddNonConst(&left, &right, &left)
	it.r.jacobian(&right)
	return left.EquivalentNonConst(&right)
}

// decodeHex fills dst from exactly as many lower-case hex digits.
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
