package batchverify

import (
	"github.com/consensys/gnark-crypto/ecc/secp256k1"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fr"
)

// factorSize is the number of random bytes in a factor.
const factorSize = 16

// term is the part of the equation with one author's key.
type term struct {
	key    *secp256k1.G1Affine
	scalar fr.Element // sum of a_i*e_i
}

// collect makes a term with scalar 0 for each author of the items and returns their number.
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
func factor(a *fr.Element, b, c int64) {
	lambda := lambdaScalar()
	var low fr.Element
	a.SetInt64(c).Mul(a, &lambda).Add(a, low.SetInt64(b))
}

// abs64 splits n into magnitude and sign. The magnitude is at most 2^63.
func abs64(n int64) (magnitude uint64, negative bool) {
	if n < 0 {
		return -uint64(n), true
	}
	return uint64(n), false
}
