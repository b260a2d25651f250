package batchverify

import (
	"math"
	"math/bits"

	"github.com/consensys/gnark-crypto/ecc/secp256k1"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fp"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fr"
)

const (
	shortBits = 64 // bits of a short scalar, with sign
	longBits  = 65 // additional bits of a long scalar, with sign

	maxWidth = 12 // maximum width of a window

	// groupPoints is the minimum number of points added together. It is large enough to make their
	// common inversion cheap and small enough for the cache.
	groupPoints = 4096
)

// multiexp computes a sum of scalar*point by Pippenger's method. Scalars are divided into windows
// of signed digits, and points with the same digit in a window are summed in a bucket. Then the
// buckets whose digit has a certain bit set are summed, which leaves one point per bit of the
// scalars. All points are affine until then, and many additions share one inversion.
//
// A long scalar becomes two scalars of 129 bits, and a short one two of 64 bits. Windows from bit
// 64 on concern only long scalars and have their own width.
type multiexp struct {
	long, short []part
	windows     []window
	digits      []int16 // of window w and point i: digits[windows[w].digits+i]
	beta        fp.Element

	buckets adder // of one group of windows
	bits    adder // of one group of windows, one list per bit
	sums    [shortBits + longBits]bitSum
}

// bitSum is the sum for one bit, to be multiplied by a power of two.
type bitSum struct {
	point   secp256k1.G1Affine
	present bool // false: the sum is infinity
}

type part struct {
	point  secp256k1.G1Affine
	scalar half
}

// window is a range of bits of all scalars.
type window struct {
	offset, width int
	points        int // number of points with a digit, long ones first
	digits        int // index of the first digit
}

// buckets returns the number of nonzero digits without sign.
func (w *window) buckets() int { return 1 << (w.width - 1) }

// reset sets the sum to empty.
func (m *multiexp) reset() {
	m.long, m.short = m.long[:0], m.short[:0]
	m.beta = betaField()
}

// addShort adds (b + c*lambda)*point.
func (m *multiexp) addShort(point *secp256k1.G1Affine, b, c int64) {
	var k1, k2 half
	k1.magnitude[0], k1.negative = abs64(b)
	k2.magnitude[0], k2.negative = abs64(c)
	m.short = m.pair(m.short, point, k1, k2)
}

// addLong adds scalar*point.
func (m *multiexp) addLong(point *secp256k1.G1Affine, scalar *fr.Element) {
	k1, k2 := split(scalar)
	m.long = m.pair(m.long, point, k1, k2)
}

// pair appends the point with k1 and lambda times the point with k2.
func (m *multiexp) pair(parts []part, point *secp256k1.G1Affine, k1, k2 half) []part {
	parts = append(parts, part{*point, k1}, part{*point, k2})
	x := &parts[len(parts)-1].point.X
	x.Mul(x, &m.beta)
	return parts
}

// sum returns the sum of all added terms.
func (m *multiexp) sum() (result secp256k1.G1Jac) {
	m.plan()
	m.recode()
	for i := range m.sums {
		m.sums[i].present = false
	}
	for start := 0; start < len(m.windows); {
		end, points := start, 0
		for end < len(m.windows) && (end == start || points+m.windows[end].points <= groupPoints) {
			points += m.windows[end].points
			end++
		}
		m.group(m.windows[start:end])
		start = end
	}
	for i := len(m.sums) - 1; i >= 0; i-- {
		result.DoubleAssign()
		if m.sums[i].present {
			result.AddMixed(&m.sums[i].point)
		}
	}
	return result
}

func (m *multiexp) plan() {
	m.windows = m.windows[:0]
	m.cut(0, shortBits, len(m.long)+len(m.short))
	m.cut(shortBits, longBits, len(m.long))
}

// cut plans the windows of a range of bits for a number of points.
func (m *multiexp) cut(offset, total, points int) {
	if points == 0 {
		return
	}
	count := (total + bestWidth(total, points) - 1) / bestWidth(total, points)
	for i := range count {
		next := total * (i + 1) / count
		w := window{offset: offset + total*i/count, points: points}
		w.width = offset + next - w.offset
		m.windows = append(m.windows, w)
	}
}

// bestWidth returns the window width with the lowest cost of additions.
func bestWidth(total, points int) (best int) {
	cheapest := math.MaxInt
	for width := 2; width <= maxWidth; width++ {
		filled := min(1<<(width-1), points)
		cost := (total + width - 1) / width * (points + filled*width/2)
		if cost < cheapest {
			cheapest, best = cost, width
		}
	}
	return best
}

// recode computes the digits. A digit above half of the window's range becomes negative and adds
// one to the next digit. No carry remains at the end of a scalar, because its top bit is set only
// in the largest magnitude.
func (m *multiexp) recode() {
	size := 0
	for i := range m.windows {
		m.windows[i].digits = size
		size += m.windows[i].points
	}
	if len(m.digits) < size {
		m.digits = make([]int16, size)
	}
	for i := range m.long {
		m.recodeOne(i, &m.long[i].scalar)
	}
	for i := range m.short {
		m.recodeOne(len(m.long)+i, &m.short[i].scalar)
	}
}

func (m *multiexp) recodeOne(i int, k *half) {
	carry := 0
	for j := range m.windows {
		w := &m.windows[j]
		if i >= w.points {
			return
		}
		digit := k.bits(w.offset, w.width) + carry
		carry = 0
		if digit > w.buckets() {
			digit -= 2 * w.buckets()
			carry = 1
		}
		if k.negative {
			digit = -digit
		}
		m.digits[w.digits+i] = int16(digit)
	}
}

// bits returns a range of bits of the magnitude.
func (k *half) bits(offset, width int) int {
	word, shift := offset/64, offset%64
	if word >= len(k.magnitude) {
		return 0
	}
	v := k.magnitude[word] >> shift
	if shift+width > 64 && word == 0 {
		v |= k.magnitude[1] << (64 - shift)
	}
	return int(v & (1<<width - 1))
}

func (m *multiexp) part(i int) *part {
	if i < len(m.long) {
		return &m.long[i]
	}
	return &m.short[i-len(m.long)]
}

// group computes the bit sums of adjacent windows.
func (m *multiexp) group(windows []window) {
	m.fillBuckets(windows)
	m.buckets.run()
	m.fillBits(windows)
	m.bits.run()
	for i, l := range m.bits.lists {
		if l.count == 1 {
			m.sums[windows[0].offset+i] = bitSum{m.bits.points[l.start], true}
		}
	}
}

// fillBuckets puts each point, or its negative, into the bucket of its digit.
func (m *multiexp) fillBuckets(windows []window) {
	total := 0
	for i := range windows {
		total += windows[i].buckets() + 1 // bucket 0 stays empty
	}
	b := &m.buckets
	b.resize(total)
	base := 0
	for i := range windows {
		for _, digit := range m.digitsOf(&windows[i]) {
			if digit != 0 {
				b.expect(base + magnitude(digit))
			}
		}
		base += windows[i].buckets() + 1
	}
	b.allocate()
	base = 0
	for i := range windows {
		for j, digit := range m.digitsOf(&windows[i]) {
			if digit == 0 {
				continue
			}
			p := b.place(base + magnitude(digit))
			*p = m.part(j).point
			if digit < 0 {
				p.Y.Neg(&p.Y)
			}
		}
		base += windows[i].buckets() + 1
	}
}

// fillBits puts the sum of each bucket into the lists of the bits of its digit.
func (m *multiexp) fillBits(windows []window) {
	total := 0
	for i := range windows {
		total += windows[i].width
	}
	m.bits.resize(total)
	m.eachBit(windows, func(bit, _ int) { m.bits.expect(bit) })
	m.bits.allocate()
	m.eachBit(windows, func(bit, bucket int) {
		*m.bits.place(bit) = m.buckets.points[m.buckets.lists[bucket].start]
	})
}

// eachBit calls f for each bucket with a sum and each bit of its digit. Bits are counted from the
// lowest bit of the first window.
func (m *multiexp) eachBit(windows []window, f func(bit, bucket int)) {
	base := 0
	for i := range windows {
		w := &windows[i]
		lowest := w.offset - windows[0].offset
		for digit := 1; digit <= w.buckets(); digit++ {
			if m.buckets.lists[base+digit].count == 0 {
				continue
			}
			for rest := uint(digit); rest != 0; rest &= rest - 1 {
				f(lowest+bits.TrailingZeros(rest), base+digit)
			}
		}
		base += w.buckets() + 1
	}
}

func (m *multiexp) digitsOf(w *window) []int16 {
	return m.digits[w.digits : w.digits+w.points]
}

// magnitude returns the absolute value of a digit.
func magnitude(digit int16) int {
	return int(max(digit, -digit))
}
