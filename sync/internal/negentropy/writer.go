package negentropy

import "math"

const (
	// buckets is how many parts a range is split into, and a range of fewer than
	// 2*buckets items is listed instead: the numbers of the reference implementation.
	buckets = 16

	maxBound = maxVarint + 1 + idSize

	// reserve is kept free in every frame for what ends it: a skip over what is
	// settled, and one fingerprint from there to infinity.
	reserve = maxBound + 1 + 3 + fingerprintSize

	minFrame     = 4096
	defaultFrame = 30_000
)

// writer builds a message of at most limit bytes out of consecutive ranges of the
// set. A method that returns false had no room, and the message then ends with the
// rest, which the peer takes up in the next round.
type writer struct {
	set   *Set
	out   []byte
	limit int
	last  uint64 // time of the last bound written

	at      int  // everything below this index is written or settled
	skipped bool // ... the end of it settled, up to skip, and not written yet
	skip    bound
}

func newWriter(s *Set, frameSize int) *writer {
	switch {
	case frameSize == 0:
		frameSize = defaultFrame
	case frameSize < 0:
		frameSize = math.MaxInt
	}
	return &writer{set: s, limit: max(frameSize, minFrame), out: []byte{version}}
}

// settle notes that nothing has to be said about the items up to hi. Neighbouring
// ranges of this kind become one, and at the end of a message none is written.
func (w *writer) settle(hi int, upper *bound) {
	w.at, w.skip, w.skipped = hi, *upper, true
}

// split tells the peer about [w.at, hi): the ids if they are few, else the
// fingerprints of its parts.
func (w *writer) split(hi int, upper *bound) bool {
	n := hi - w.at
	if n < 2*buckets {
		return w.list(hi, upper)
	}
	for i := range buckets {
		end, b := hi, *upper
		if i < buckets-1 {
			end = w.at + n/buckets
			if i < n%buckets {
				end++
			}
			b = w.set.boundAt(end)
		}
		if !w.digest(end, &b) {
			return false
		}
	}
	return true
}

// digest writes the fingerprint of [w.at, hi).
func (w *writer) digest(hi int, upper *bound) bool {
	if w.room() < maxBound+1+fingerprintSize {
		return false
	}
	fp := w.set.fingerprint(w.at, hi)
	w.header(upper, modeFingerprint)
	w.out = append(w.out, fp[:]...)
	w.at = hi
	return true
}

// list writes the ids of [w.at, hi), or of as many of them as there is room for.
func (w *writer) list(hi int, upper *bound) bool {
	free := w.room() - maxBound - 1 - maxVarint
	if free < min(hi-w.at, 1)*idSize {
		return false
	}
	end, b := hi, *upper
	if n := free / idSize; hi-w.at > n {
		end = w.at + n
		b = w.set.boundAt(end)
	}
	w.header(&b, modeIDs)
	w.out = appendVarint(w.out, uint64(end-w.at))
	for i := w.at; i < end; i++ {
		w.out = append(w.out, w.set.ids[i][:]...)
	}
	w.at = end
	return end == hi
}

// room is what a range may take, a skip before it deducted.
func (w *writer) room() int {
	n := w.limit - len(w.out) - reserve
	if w.skipped {
		n -= maxBound + 1
	}
	return n
}

// header starts a range, after the skip that is still to be written.
func (w *writer) header(upper *bound, m mode) {
	if w.skipped {
		w.skipped = false
		w.header(&w.skip, modeSkip)
	}
	if upper.time == infinity {
		w.out = append(w.out, 0)
	} else {
		w.out = appendVarint(w.out, upper.time-w.last+1)
		w.last = upper.time
	}
	w.out = append(w.out, byte(upper.size))
	w.out = append(w.out, upper.id[:upper.size]...)
	w.out = append(w.out, byte(m))
}

// rest ends a message that is full: one fingerprint of everything above w.at, so
// that the peer comes back to it. The room for it was kept.
func (w *writer) rest() {
	fp := w.set.fingerprint(w.at, w.set.Len())
	w.header(&bound{time: infinity}, modeFingerprint)
	w.out = append(w.out, fp[:]...)
}
