package batchverify

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/consensys/gnark-crypto/ecc/secp256k1"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fr"
	decred "github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

func randomScalar(rng *rand.Rand) (s fr.Element) {
	return scalarOf(words4{rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64()})
}

// The reference for all sums is another library. These are its scalars and points.

func decredScalar(k *fr.Element) (s decred.ModNScalar) {
	b := k.Bytes()
	s.SetBytes(&b)
	return s
}

func decredPoint(a *secp256k1.G1Affine) (p decred.JacobianPoint) {
	x, y := a.X.Bytes(), a.Y.Bytes()
	p.X.SetBytes(&x)
	p.Y.SetBytes(&y)
	p.Z.SetInt(1)
	return p
}

// decredTimes returns k*a.
func decredTimes(k *fr.Element, a *secp256k1.G1Affine) (p decred.JacobianPoint) {
	s, q := decredScalar(k), decredPoint(a)
	decred.ScalarMultNonConst(&s, &q, &p)
	return p
}

func requireSame(t *testing.T, want *decred.JacobianPoint, got *secp256k1.G1Jac, args ...any) {
	t.Helper()
	if got.Z.IsZero() {
		require.True(t, want.Z.IsZero() || want.X.IsZero() && want.Y.IsZero(), args...)
		return
	}
	var a secp256k1.G1Affine
	p := decredPoint(a.FromJacobian(got))
	require.True(t, p.EquivalentNonConst(want), args...)
}

// randomPoint returns a multiple of the generator, often a small one, so that points repeat and
// cancel.
func randomPoint(rng *rand.Rand) (a secp256k1.G1Affine) {
	k := scalarOf(words4{1 + rng.Uint64N(6)})
	if rng.IntN(2) == 0 {
		k = randomScalar(rng)
	}
	if rng.IntN(2) == 0 {
		k.Neg(&k)
	}
	var p decred.JacobianPoint
	s := decredScalar(&k)
	decred.ScalarBaseMultNonConst(&s, &p)
	p.ToAffine()
	a.X.SetBytes(p.X.Bytes()[:])
	a.Y.SetBytes(p.Y.Bytes()[:])
	return a
}

func edgeScalars() []fr.Element {
	one := scalarOf(words4{1})
	all := []fr.Element{{}, one, lambdaScalar(), minusB1(), minusB2()}
	for bit := range 256 {
		var w words4
		w[bit/64] = 1 << (bit % 64)
		all = append(all, scalarOf(w))
	}
	for _, s := range all {
		var minus, more fr.Element
		minus.Neg(&s)
		more.Add(&minus, &one)
		all = append(all, minus, more)
	}
	return all
}

// The sum equals single multiplications, for sizes with each window width and extreme scalars.
func TestMultiexpAgreesWithTwin(t *testing.T) {
	racetest.Amounts(t)
	rng := rand.New(rand.NewPCG(5, 5))
	edges := edgeScalars()
	ends := []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64, -1, 0, 1}
	var m multiexp
	for _, size := range []int{0, 1, 2, 3, 5, 20, 60, 300, 20, 1} {
		for _, long := range []int{0, 1, size / 2, size} {
			m.reset()
			var want decred.JacobianPoint
			add := func(point *secp256k1.G1Affine, k *fr.Element) {
				p := decredTimes(k, point)
				decred.AddNonConst(&want, &p, &want)
			}
			for i := range size {
				point := randomPoint(rng)
				if i < long {
					k := randomScalar(rng)
					if rng.IntN(3) == 0 {
						k = edges[rng.IntN(len(edges))]
					}
					m.addLong(&point, &k)
					add(&point, &k)
					continue
				}
				b, c := int64(rng.Uint64()), int64(rng.Uint64())
				if rng.IntN(3) == 0 {
					b, c = ends[rng.IntN(len(ends))], ends[rng.IntN(len(ends))]
				}
				var k fr.Element
				factor(&k, b, c)
				m.addShort(&point, b, c)
				add(&point, &k)
			}
			got := m.sum()
			requireSame(t, &want, &got, "%d points, %d long", size, long)
		}
	}
}

func TestAdderWithEqualAndOppositePoints(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 1 + 300/thoroughness {
		var a adder
		lists := make([][]secp256k1.G1Affine, 1+rng.IntN(5))
		a.resize(len(lists))
		for i := range lists {
			for range rng.IntN(9) {
				p := randomPoint(rng)
				lists[i] = append(lists[i], p)
				if rng.IntN(3) == 0 {
					p.Y.Neg(&p.Y)
				}
				lists[i] = append(lists[i], p)
			}
			for range lists[i] {
				a.expect(i)
			}
		}
		a.allocate()
		for i := range lists {
			for _, p := range lists[i] {
				*a.place(i) = p
			}
		}
		a.run()
		for i := range lists {
			var want decred.JacobianPoint
			for _, q := range lists[i] {
				p := decredPoint(&q)
				decred.AddNonConst(&want, &p, &want)
			}
			var got secp256k1.G1Jac
			require.LessOrEqual(t, a.lists[i].count, int32(1))
			if a.lists[i].count == 1 {
				got.FromAffine(&a.points[a.lists[i].start])
			}
			requireSame(t, &want, &got)
		}
	}
}
