package batchverify

import (
	"encoding/binary"
	"math/bits"

	"github.com/consensys/gnark-crypto/ecc/secp256k1/fp"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fr"
)

// The curve has an endomorphism lambda*(x, y) = (beta*x, y), with lambda a cube root of 1 modulo
// the order and beta a cube root of 1 modulo p. A scalar k is split into k1 + k2*lambda with
// magnitudes below 2^128 by rounding to the nearest point of the lattice of all (a, b) with a +
// b*lambda = 0. Short vectors (a1, b1) and (a2, b2) span this lattice.

// The words have 64 bits, least significant first.
type (
	words4 [4]uint64
	half   struct {
		magnitude [2]uint64
		negative  bool
	}
)

func lambdaScalar() fr.Element {
	return scalarOf(words4{0xdf02967c1b23bd72, 0x122e22ea20816678, 0xa5261c028812645a, 0x5363ad4cc05c30e0})
}

func betaField() (beta fp.Element) {
	buf := (&words4{0xc1396c28719501ee, 0x9cf0497512f58995, 0x6e64479eac3434e9, 0x7ae96a2b657c0710}).bytes()
	beta.SetBytes(buf[:])
	return beta
}

// round1 and round2 return b2*2^384/order and -b1*2^384/order, rounded.
func round1() words4 {
	return words4{0xe893209a45dbb031, 0x3daa8a1471e8ca7f, 0xe86c90e49284eb15, 0x3086d221a7d46bcd}
}

func round2() words4 {
	return words4{0x1571b4ae8ac47f71, 0x221208ac9df506c6, 0x6f547fa90abfe4c4, 0xe4437ed6010e8828}
}

// minusB1 and minusB2 return the negated second coordinates of the short vectors.
func minusB1() fr.Element {
	return scalarOf(words4{0x6f547fa90abfe4c3, 0xe4437ed6010e8828})
}

func minusB2() fr.Element {
	return scalarOf(words4{0xd765cda83db1562c, 0x8a280ac50774346d, 0xfffffffffffffffe, 0xffffffffffffffff})
}

// bytes returns w in big-endian order.
func (w *words4) bytes() (buf [32]byte) {
	for i, word := range w {
		binary.BigEndian.PutUint64(buf[24-8*i:], word)
	}
	return buf
}

func scalarOf(w words4) (s fr.Element) {
	buf := w.bytes()
	s.SetBytes(buf[:])
	return s
}

// split returns k1 and k2 with k = k1 + k2*lambda modulo the order.
func split(k *fr.Element) (k1, k2 half) {
	w := words4(k.Bits())
	c1, c2 := scalarOf(mulRound(w, round1())), scalarOf(mulRound(w, round2()))
	b1, b2, lambda := minusB1(), minusB2(), lambdaScalar()

	var first, second fr.Element
	second.Add(c1.Mul(&c1, &b1), c2.Mul(&c2, &b2))
	first.Sub(k, lambda.Mul(&lambda, &second))
	return halfOf(&first), halfOf(&second)
}

// halfOf converts a scalar that is small or has a small negative.
func halfOf(s *fr.Element) (h half) {
	if s.LexicographicallyLargest() {
		s.Neg(s)
		h.negative = true
	}
	w := s.Bits()
	h.magnitude = [2]uint64{w[0], w[1]}
	return h
}

// mulRound returns a*b/2^384, rounded.
func mulRound(a, b words4) words4 {
	var product [8]uint64
	for i, x := range a {
		var carry uint64
		for j, y := range b {
			hi, lo := bits.Mul64(x, y)
			var c uint64
			lo, c = bits.Add64(lo, product[i+j], 0)
			hi += c
			lo, c = bits.Add64(lo, carry, 0)
			hi += c
			product[i+j], carry = lo, hi
		}
		product[i+4] = carry
	}
	low, c := bits.Add64(product[6], product[5]>>63, 0)
	return words4{low, product[7] + c}
}
