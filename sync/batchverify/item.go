package batchverify

import (
	"crypto/sha256"
	"errors"
	"math/big"

	"github.com/consensys/gnark-crypto/ecc/secp256k1"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fp"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fr"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Errors of an event found before any equation is checked.
var (
	errKey       = errors.New("public key is not on the curve")
	errSigHex    = errors.New("not 128 lower-case hex digits")
	errR         = errors.New("r is not on the curve")
	errS         = errors.New("s is not below the order of the group")
	errNoEvent   = errors.New("no event")
	challengeTag = sha256.Sum256([]byte("BIP0340/challenge"))
)

type item struct {
	key     *secp256k1.G1Affine // shared by the items of an author
	r       secp256k1.G1Affine
	s, e    fr.Element
	verdict *error
}

// parse parses key, signature and id. keys contains the points of the batch by key.
func (it *item) parse(ev *nostr.Event, keys map[string]*secp256k1.G1Affine) error {
	if ev == nil {
		return errNoEvent
	}
	id, err := graspsync.ParseEventID(ev.ID)
	if err != nil {
		return err
	}
	author, err := graspsync.ParsePubKey(ev.PubKey)
	if err != nil {
		return err
	}
	if it.key = keys[ev.PubKey]; it.key == nil {
		key, ok := lift(author)
		if !ok {
			return errKey
		}
		it.key = &key
		keys[ev.PubKey] = it.key
	}
	if len(ev.Sig) != 128 {
		return errSigHex
	}
	r, errFirst := graspsync.ParseEventID(ev.Sig[:64])
	s, errSecond := graspsync.ParseEventID(ev.Sig[64:])
	if errFirst != nil || errSecond != nil {
		return errSigHex
	}
	return it.set(author, r, s, id[:])
}

// set sets r, s and e. BIP-340 allows messages of any length.
func (it *item) set(author, r, s [32]byte, message []byte) error {
	if it.s.SetBytesCanonical(s[:]) != nil {
		return errS
	}
	var ok bool
	if it.r, ok = lift(r); !ok {
		return errR
	}
	h := sha256.New()
	for _, part := range [][]byte{challengeTag[:], challengeTag[:], r[:], author[:], message} {
		_, _ = h.Write(part) // never fails
	}
	it.e.SetBytes(h.Sum(nil)) // modulo the order
	return nil
}

// lift returns the point with x coordinate x and an even y, or false if none exists.
func lift(x [32]byte) (p secp256k1.G1Affine, ok bool) {
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

// check verifies one signature: s*G - e*P = R. BIP-340 requires no more, because R has the x
// coordinate r and an even y.
func (it *item) check() bool {
	var minusE fr.Element
	var first, second big.Int
	var left, right secp256k1.G1Jac
	left.JointScalarMultiplicationBase(it.key, it.s.BigInt(&first), minusE.Neg(&it.e).BigInt(&second))
	return left.Equal(right.FromAffine(&it.r))
}
