package batchverify

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func randomScalar(rng *rand.Rand) (s secp256k1.ModNScalar) {
	return scalarOf(words4{rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64()})
}

// randomPoint returns a multiple of the generator, small ones often, so that points
// repeat and cancel.
func randomPoint(rng *rand.Rand) (a affine) {
	k := scalarOf(words4{1 + rng.Uint64N(6)})
	if rng.IntN(2) == 0 {
		k = randomScalar(rng)
	}
	if rng.IntN(2) == 0 {
		k.Negate()
	}
	var p secp256k1.JacobianPoint
	secp256k1.ScalarBaseMultNonConst(&k, &p)
	p.ToAffine()
	return affine{p.X, p.Y}
}

func edgeScalars() []secp256k1.ModNScalar {
	one := scalarOf(words4{1})
	all := []secp256k1.ModNScalar{{}, one, lambdaScalar(), minusB1(), minusB2()}
	for bit := range 256 {
		var w words4
		w[bit/64] = 1 << (bit % 64)
		all = append(all, scalarOf(w))
	}
	for _, s := range all {
		minus := *s.Negate()
		all = append(all, minus)
		less := *minus.Add(&one)
		all = append(all, less)
	}
	return all
}

// back returns k1 + k2*lambda.
func back(k1, k2 half) secp256k1.ModNScalar {
	value := func(h half) secp256k1.ModNScalar {
		s := scalarOf(words4{h.magnitude[0], h.magnitude[1]})
		if h.negative {
			s.Negate()
		}
		return s
	}
	first, second, lambda := value(k1), value(k2), lambdaScalar()
	return *second.Mul(&lambda).Add(&first)
}

// If a half did not fit, what is left of it would not add up.
func TestSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	scalars := edgeScalars()
	for range 20000 / thoroughness {
		scalars = append(scalars, randomScalar(rng))
	}
	for _, k := range scalars {
		got := back(split(&k))
		require.True(t, got.Equals(&k), k.String())
	}
}

func TestEndomorphism(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	lambda, beta := lambdaScalar(), betaField()
	p := randomPoint(rng)
	var q, want secp256k1.JacobianPoint
	p.jacobian(&q)
	secp256k1.ScalarMultNonConst(&lambda, &q, &want)
	p.x.Mul(&beta).Normalize()
	p.jacobian(&q)
	assert.True(t, q.EquivalentNonConst(&want))
}

// The sum agrees with one multiplication after the other, for sizes that take each
// width of window, and scalars at the ends of their range.
func TestMultiexpAgreesWithTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	edges := edgeScalars()
	ends := []int64{math.MinInt64, math.MinInt64 + 1, math.MaxInt64, -1, 0, 1}
	var m multiexp
	for _, size := range []int{0, 1, 2, 3, 5, 20, 60, 300, 20, 1} {
		for _, long := range []int{0, 1, size / 2, size} {
			m.reset()
			var want, p secp256k1.JacobianPoint
			add := func(point *affine, k *secp256k1.ModNScalar) {
				point.jacobian(&p)
				secp256k1.ScalarMultNonConst(k, &p, &p)
				secp256k1.AddNonConst(&want, &p, &want)
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
				var k secp256k1.ModNScalar
				factor(&k, b, c)
				m.addShort(&point, b, c)
				add(&point, &k)
			}
			var got secp256k1.JacobianPoint
			m.sum(&got)
			require.True(t, got.EquivalentNonConst(&want), "%d points, %d long", size, long)
		}
	}
}

func TestAdderWithEqualAndOppositePoints(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 1 + 300/thoroughness {
		var a adder
		lists := make([][]affine, 1+rng.IntN(5))
		a.resize(len(lists))
		for i := range lists {
			for range rng.IntN(9) {
				p := randomPoint(rng)
				lists[i] = append(lists[i], p)
				if rng.IntN(3) == 0 {
					p.y.Negate(1).Normalize()
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
			var want, p secp256k1.JacobianPoint
			for _, q := range lists[i] {
				q.jacobian(&p)
				secp256k1.AddNonConst(&want, &p, &want)
			}
			var got secp256k1.JacobianPoint
			require.LessOrEqual(t, a.lists[i].count, int32(1))
			if a.lists[i].count == 1 {
				a.points[a.lists[i].start].jacobian(&got)
			}
			require.True(t, got.EquivalentNonConst(&want))
		}
	}
}

// Windows cover each bit once, and fit what their digits are kept in.
func TestWindowsCoverAllBits(t *testing.T) {
	for _, points := range []int{1, 4, 100, 4096, 1 << 20} {
		m := &multiexp{long: make([]part, points), short: make([]part, points)}
		m.plan()
		next := 0
		for _, w := range m.windows {
			require.Equal(t, next, w.offset)
			require.LessOrEqual(t, w.width, maxWidth)
			require.Positive(t, w.width)
			next += w.width
		}
		require.Equal(t, shortBits+longBits, next)
	}
}
