package batchverify

import (
	"encoding/binary"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
)

// factorSize is how many random bytes make a factor.
const factorSize = 16

// term is one author's part of the equation.
type term struct {
	key    *affine
	scalar secp256k1.ModNScalar // sum of a_i*e_i
}

// collect finds the authors of the items and returns their number. Each gets a
// term with scalar 0.
func (s *scratch) collect(items []*item) int {
	if s.keys == nil {
		s.keys = make(map[[32]byte]int32)
	}
	clear(s.keys)
	s.terms = s.terms[:0]
	for _, it := range items {
		if _, ok := s.keys[it.author]; !ok {
			s.keys[it.author] = int32(len(s.terms))
			s.terms = append(s.terms, term{key: &it.key})
		}
	}
	return len(s.terms)
}

// factor sets a to b + c*lambda.
func factor(a *secp256k1.ModNScalar, b, c int64) {
	var low secp256k1.ModNScalar
	setInt64(&low, b)
	setInt64(a, c)
	lambda := lambdaScalar()
	a.Mul(&lambda).Add(&low)
}

// setInt64 sets s to n modulo the order.
func setInt64(s *secp256k1.ModNScalar, n int64) {
	var buf [8]byte
	magnitude, negative := abs64(n)
	binary.BigEndian.PutUint64(buf[:], magnitude)
	s.SetByteSlice(buf[:])
	if negative {
		s.Negate()
	}
}

// abs64 splits n into magnitude and sign; the magnitude is at most 2^63.
func abs64(n int64) (magnitude uint64, negative bool) {
	if n < 0 {
		return -uint64(n), true
	}
	return uint64(n), false
}
