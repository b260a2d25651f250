package batchverify

import (
	"github.com/consensys/gnark-crypto/ecc/secp256k1"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fp"
)

// adder sums lists of affine points. An addition needs an inversion, and n inversions together cost
// one inversion and 3n multiplications. So each round adds all pairs of neighbors in all lists.
//
// Call resize, expect for each point, allocate, place for each point, and run.
type adder struct {
	lists  []list
	points []secp256k1.G1Affine
	active []int32 // lists with more than one point

	// of one round, one per pair
	divisors, products []fp.Element
	kinds              []kind
}

type list struct {
	start, count int32
}

// kind is the type of an addition.
type kind uint8

const (
	differ   kind = iota // different x coordinates: a chord
	same                 // the same point twice: a tangent
	opposite             // the sum is infinity
)

// resize makes a number of empty lists.
func (a *adder) resize(lists int) {
	if cap(a.lists) < lists {
		a.lists = make([]list, lists)
	}
	a.lists = a.lists[:lists]
	clear(a.lists)
}

// expect reserves room for one point in a list.
func (a *adder) expect(i int) { a.lists[i].count++ }

// allocate allocates the reserved room.
func (a *adder) allocate() {
	a.active = a.active[:0]
	total := int32(0)
	for i := range a.lists {
		l := &a.lists[i]
		if l.count > 1 {
			a.active = append(a.active, int32(i))
		}
		l.start = total
		total += l.count
		l.count = 0
	}
	if cap(a.points) < int(total) {
		a.points = make([]secp256k1.G1Affine, total)
	}
	a.points = a.points[:total]
}

// place returns the location for the next point of a list.
func (a *adder) place(i int) *secp256k1.G1Affine {
	l := &a.lists[i]
	l.count++
	return &a.points[l.start+l.count-1]
}

// run reduces each list to its sum. The list is empty if the sum is infinity.
func (a *adder) run() {
	for len(a.active) > 0 {
		inverse := a.divide()
		left := a.active[:0]
		for _, i := range a.active {
			a.halve(&a.lists[i], &inverse)
			if a.lists[i].count > 1 {
				left = append(left, i)
			}
		}
		a.active = left
	}
}

// divide stores the divisors of all pairs, last pair first, and for each pair the product of the
// divisors before it. It returns the inverse of the product of all divisors.
func (a *adder) divide() fp.Element {
	a.divisors, a.products, a.kinds = a.divisors[:0], a.products[:0], a.kinds[:0]
	var product, divisor fp.Element
	product.SetOne()
	for i := len(a.active) - 1; i >= 0; i-- {
		l := a.lists[a.active[i]]
		for j := l.start + l.count&^1 - 2; j >= l.start; j -= 2 {
			k := divisorOf(&divisor, &a.points[j], &a.points[j+1])
			a.kinds = append(a.kinds, k)
			a.divisors = append(a.divisors, divisor)
			a.products = append(a.products, product)
			product.Mul(&product, &divisor)
		}
	}
	return *product.Inverse(&product)
}

// divisorOf sets d to the divisor of the slope of the line through p and q. It is never zero,
// because the order is odd and so no point of the curve has y = 0.
func divisorOf(d *fp.Element, p, q *secp256k1.G1Affine) kind {
	d.Sub(&q.X, &p.X)
	switch {
	case !d.IsZero():
		return differ
	case p.Y.Equal(&q.Y):
		d.Double(&p.Y)
		return same
	default:
		d.SetOne()
		return opposite
	}
}

// halve adds the pairs of one list. inverse is the inverse of the product of all remaining
// divisors.
func (a *adder) halve(l *list, inverse *fp.Element) {
	out := l.start
	end := l.start + l.count
	for j := l.start; j+1 < end; j += 2 {
		n := len(a.kinds) - 1
		var own fp.Element
		own.Mul(inverse, &a.products[n])
		inverse.Mul(inverse, &a.divisors[n])
		k := a.kinds[n]
		a.divisors, a.products, a.kinds = a.divisors[:n], a.products[:n], a.kinds[:n]
		if k != opposite {
			addAffine(&a.points[out], &a.points[j], &a.points[j+1], &own, k)
			out++
		}
	}
	if l.count&1 == 1 {
		a.points[out] = a.points[end-1]
		out++
	}
	l.count = out - l.start
}

// addAffine sets sum to p + q, given the inverse of their divisor. sum may alias p or q.
func addAffine(sum, p, q *secp256k1.G1Affine, inverse *fp.Element, k kind) {
	var slope, x, y fp.Element
	if k == same {
		slope.Square(&p.X)
		y.Double(&slope)
		slope.Add(&slope, &y)
	} else {
		slope.Sub(&q.Y, &p.Y)
	}
	slope.Mul(&slope, inverse)
	x.Square(&slope).Sub(&x, &p.X).Sub(&x, &q.X)
	y.Sub(&p.X, &x).Mul(&y, &slope).Sub(&y, &p.Y)
	sum.X, sum.Y = x, y
}
